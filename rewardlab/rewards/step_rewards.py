"""Computes learned rewards step by step, for Gymnasium environments that are stepped by other libraries."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from tensordict import TensorDict
from torch import Tensor

from rewardlab.data.episodes import Array
from rewardlab.envs.camera_frames import CameraFrames
from rewardlab.envs.step_results import Bools, Infos, autoreset_mode, check_autoreset
from rewardlab.errors import ConfigError
from rewardlab.observations import copy_observation, final_rows, to_numpy
from rewardlab.rewards.manager import ESTIMATE, RewardManager, RewardTerm, compute_reward, place_estimates

_ADVICE = ". The reward model looks at this camera; render_mode='rgb_array' lets an environment render a single one"


class Step(NamedTuple):
    """One step of all environments, as a vector environment returns it."""

    action: Array
    obs: Any
    env_reward: Tensor
    terminated: Bools
    truncated: Bools
    infos: Infos


class StepRewards:
    """Computes the reward of each step; each frame is scored once, with the step that led to it.

    Steps outside of episodes are not scored: the reset step of AutoresetMode.NEXT_STEP, and steps after the end of an
    episode with AutoresetMode.DISABLED.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], manager: RewardManager, *, advice: str = _ADVICE) -> None:
        """Check that the environment fits; `advice` ends the error about a missing camera."""
        self.manager = manager
        self.autoreset = autoreset_mode(env)
        self._running = np.zeros(env.num_envs, bool)
        self._before = TensorDict()
        self._cameras: dict[str, CameraFrames] = {}
        for term in manager.terms:
            if term.looks_at == "frames":
                self._cameras[term.name] = CameraFrames(env, term.cameras, term.frame_sizes, advice=advice)
                self._cameras[term.name].check()
                self._cameras[term.name].keep_last()
            elif term.looks_at == "episodes":
                model_type = manager.models[term.name].model_type
                raise ConfigError(
                    f"reward model '{model_type}' scores whole episodes, and a wrapper sees single steps; use it with "
                    "`rewardlab run`"
                )
        if self.autoreset != AutoresetMode.DISABLED and any(term.ends_episode for term in manager.terms):
            raise ConfigError(
                "reward.model.ends_episode: found true, but this vector environment resets itself before the reward "
                "model can score the frame; wrap the single environments with RewardModelWrapper, or use "
                "AutoresetMode.DISABLED"
            )
        self._sees_transitions = len(self._cameras) < len(manager.models)

    def begin(self, obs: Any, mask: Bools | None = None) -> None:
        """Begin episodes with the first observations `obs`, in all environments or in those that `mask` marks."""
        self._running = np.ones_like(self._running) if mask is None else self._running | to_numpy(mask).astype(bool)
        self._store_observation(obs)

    def compute(self, step: Step) -> tuple[Tensor, dict[str, Tensor], Bools]:
        """Return the reward of each environment, the estimates of each term, and which episodes terminated.

        Estimates are NaN where the model did not score the step. Models with `ends_episode` terminate episodes too.
        """
        check_autoreset(self.autoreset, step.infos)
        running, rule = self._running, self.manager.rule
        ended = (step.terminated | step.truncated) & running
        columns = {
            "env_reward": step.env_reward,
            "terminated": torch.from_numpy(step.terminated & running),
            "truncated": torch.from_numpy(step.truncated & running),
        }
        batch = TensorDict(columns, batch_size=[len(running)])
        if self._sees_transitions:
            batch["observation"], batch["next_observation"] = self._before, self._next_observation(step, ended)
            batch["action"] = torch.as_tensor(step.action)
        estimates = {term.name: self._estimate(term, step, batch, running, ended) for term in rule.terms}
        batch[ESTIMATE] = estimates
        for term in rule.terms:
            if term.ends_episode:
                batch["terminated"] |= term.predicts_success(estimates[term.name])
        terminated = batch["terminated"].numpy() | step.terminated
        ended = (terminated | step.truncated) & running
        self._running = {
            AutoresetMode.SAME_STEP: running,
            AutoresetMode.NEXT_STEP: ~ended,
            AutoresetMode.DISABLED: running & ~ended,
        }[self.autoreset]
        self._store_observation(step.obs)
        return compute_reward(rule, batch), estimates, terminated

    def _estimate(self, term: RewardTerm, step: Step, batch: TensorDict, running: Bools, ended: Bools) -> Tensor:
        scored = ended if term.scored == "last_step" and not term.ends_episode else running
        rows = torch.from_numpy(scored)
        if not scored.any():
            estimates = torch.zeros(0)
        elif term.looks_at == "frames":
            estimates = self.manager.score(term.name, self._frames(self._cameras[term.name], step, scored, ended))
        else:
            estimates = self.manager.estimate(batch[rows], [term.name])[term.name]
        return place_estimates(estimates, rows)

    def _frames(self, cameras: CameraFrames, step: Step, scored: Bools, ended: Bools) -> dict[str, Any]:
        if scored.all():
            return {"images": cameras.following(step.obs, step.infos, ended)}
        if self.autoreset == AutoresetMode.SAME_STEP:  # terminal mode: only the episodes that ended
            return {"images": cameras.final(step.infos, np.flatnonzero(scored))}
        return {"images": cameras.now(step.obs, np.flatnonzero(scored))}

    def _store_observation(self, obs: Any) -> None:
        if self._sees_transitions:
            self._before = copy_observation(obs)

    def _next_observation(self, step: Step, ended: Bools) -> TensorDict:
        """Return the observations after a step; where an episode ended, its last observation."""
        following = copy_observation(step.obs)
        if self.autoreset == AutoresetMode.SAME_STEP and ended.any():
            rows = np.flatnonzero(ended)
            following[torch.from_numpy(rows)] = copy_observation(final_rows(step.infos["final_obs"], rows))
        return following


class BatchOfOne(VectorEnv[Any, Any, Any]):
    """A single environment as a vector environment that only renders; it is stepped elsewhere."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012 - Gymnasium's own form
    num_envs = 1

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env = env
        self.observation_space = batch_space(env.observation_space, 1)
        self.render_mode = env.render_mode
        inner = env.unwrapped
        if hasattr(inner, "render_cameras"):
            self.render_cameras = self._render_cameras
        if hasattr(inner, "camera_names"):
            self.camera_names = inner.camera_names

    def render(self) -> tuple[Any, ...]:
        return (self.env.render(),)

    def _render_cameras(
        self, cameras: Sequence[str], image_size: tuple[int, int] | None, env_ids: Array | None = None
    ) -> dict[str, Array]:
        rendered = self.env.unwrapped.render_cameras(cameras, image_size=image_size)  # type: ignore[attr-defined]
        return {camera: to_numpy(image)[None] for camera, image in rendered.items()}


def with_batch_axis(obs: Any) -> Any:
    """Return an observation as a batch of one, without copying it."""
    if isinstance(obs, Mapping):
        return {name: with_batch_axis(part) for name, part in obs.items()}
    return obs if isinstance(obs, tuple) else to_numpy(obs)[None]
