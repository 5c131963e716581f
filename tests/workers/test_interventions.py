"""What a person does instead of the policy: stored as what was done, and as a demonstration."""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from rewardlab.config import load_config
from rewardlab.data.packed_batch import PackedBatch
from rewardlab.workers.actor import ActorWorker
from rewardlab.workers.env import EnvWorker

STEPS = 12


class Helped(gymnasium.Env[Any, Any]):
    """A person acts in every third step, by doing 0.5; the sixth step of an episode fails, so that it is discarded."""

    observation_space = spaces.Box(-100, 100, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        helped, failed = self.steps % 3 == 0, self.steps == 6
        executed = np.full(2, 0.5, np.float32) if helped else np.asarray(action) / 2  # limits halve the policy's
        info = {"executed_action": executed, "intervention": helped, "discard": failed, "success": False}
        return np.full(1, self.steps, np.float32), 0.0, False, failed, info


gymnasium.register("Helped-v0", Helped)


def test_steps_of_a_person_are_demonstrations_and_failed_steps_are_dropped() -> None:
    more = ["env.train.id=Helped-v0", "env.train.num_envs=2", "algorithm.name=sac", "actor.global_batch_size=8"]
    more += ["algorithm.sac.learning_starts=0", "env.train.cameras=[]", "actor.model.hidden_sizes=[8]"]
    cfg = load_config("tabletop_ppo_mlp", more)
    env = EnvWorker(cfg.env.train, seed=0, keep_next=True)
    actor = ActorWorker(cfg, *env.spaces())
    env.begin(0)
    action = torch.full((2, 2), -0.75)
    for _ in range(STEPS):
        env.step(action)
    rows = env.fetch().unpack()
    rows["log_prob"] = torch.zeros(rows.batch_size)
    actor.add(PackedBatch(rows), env_steps=2 * STEPS)

    assert actor.replay is not None
    assert actor.interventions is not None
    stored = actor.replay.sample(200, torch.Generator().manual_seed(0))
    assert len(actor.replay) == 2 * (STEPS - 2)  # without the sixth steps of two episodes
    helped = stored["observation", "state"].squeeze(-1) % 3 == 2
    assert helped.any()
    assert (stored["action"][helped] == 0.5).all()
    assert (stored["action"][~helped] == -0.75).all()  # as the policy chose, not as the limits made it
    assert len(actor.interventions) == 2 * 2  # the third steps; the sixth ones have failed
    batch = actor.sample()
    assert (batch["action"] == 0.5).all(-1).sum() >= len(batch) // 2

    restored = ActorWorker(cfg, *env.spaces())
    restored.load_state_dict(actor.state_dict())
    assert restored.interventions is not None
    assert len(restored.interventions) == 4
    env.close()
