"""How good a policy is when it does its best: one episode in each of some environments, always the same ones."""

import numpy as np
from torch import nn

from rewardlab.config.schema import EnvConfig
from rewardlab.devices import device_of, seeded_generator, to_device
from rewardlab.envs import make_vec_env
from rewardlab.envs.actions import within_bounds
from rewardlab.envs.step_results import following_success, says_success
from rewardlab.errors import DataError
from rewardlab.observations import as_observation, has_tensors, to_batch, to_numpy

MAX_STEPS = 100_000


class Evaluation:
    """`env.num_envs` episodes that follow from the seed. The environment's own reward and success, never a model's."""

    def __init__(self, env: EnvConfig, *, seed: int) -> None:
        self.name = env.id
        self.env = make_vec_env(env)
        self.seed = seed

    def run(self, policy: nn.Module) -> dict[str, float]:
        """`return`, `length` and, where the environment knows them, `success_once` and `success_at_end`; means."""
        n = self.env.num_envs
        obs, _ = self.env.reset(seed=self.seed)
        device = device_of(policy)
        generator = seeded_generator(self.seed, device)
        reward_sum, length = np.zeros(n), np.zeros(n)
        once, at_end, running = np.zeros(n, bool), np.zeros(n, bool), np.ones(n, bool)
        known = False

        def locate(row: int) -> str:
            return f"'{self.name}', environment {row}, step {int(length[row]) + 1} of its episode"

        for _ in range(MAX_STEPS):
            seen = as_observation(obs, keep_tensors=True)
            answer = policy.act(to_device(to_batch(seen), device), generator, explore=False)  # type: ignore[operator]
            action = answer["action"] if has_tensors(seen) else answer["action"].cpu().numpy()
            action = within_bounds(action, self.env.single_action_space)
            obs, reward, terminated, truncated, infos = self.env.step(action)
            done = to_numpy(terminated) | to_numpy(truncated)
            success = following_success(infos, done, locate)
            known |= says_success(infos)
            once |= running & success
            at_end = np.where(running & done, success, at_end)
            reward_sum += np.where(running, to_numpy(reward), 0)
            length += running
            running &= ~done
            if not running.any():
                figures = {"return": float(reward_sum.mean()), "length": float(length.mean())}
                if known:
                    figures |= {"success_once": float(once.mean()), "success_at_end": float(at_end.mean())}
                return figures
        raise DataError(f"an episode of '{self.name}' did not end in {MAX_STEPS} steps: set env.eval.max_episode_steps")
