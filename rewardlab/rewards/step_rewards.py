"""Which steps of an environment a reward model scores, on what, and the rewards that follow."""

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
from rewardlab.envs.step_results import Bools, CameraFrames, Infos, autoreset_mode, check_autoreset
from rewardlab.errors import ConfigError
from rewardlab.observations import copy_observation, final_rows, to_numpy
from rewardlab.rewards.manager import ESTIMATE, RewardManager, RewardTerm, compute_reward, place_estimates

_ADVICE = ". The reward model looks at this camera; render_mode='rgb_array' lets an environment draw a single one"


class Step(NamedTuple):
    """One step of all environments, as a vector environment gives it."""

    action: Array
    obs: Any
    env_reward: Tensor
    terminated: Bools
    truncated: Bools
    infos: Infos


class StepRewards:
    """Keeps track of episodes, so that every frame is scored once, as the frame of the step that led to it.

    Models are not asked about steps that belong to no episode: the reset step of NEXT_STEP, steps after an end of
    DISABLED.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], manager: RewardManager) -> None:
        self.manager = manager
        self.autoreset = autoreset_mode(env)
        self._running = np.zeros(env.num_envs, bool)
        self._before = TensorDict()
        self._cameras: dict[str, CameraFrames] = {}
        for name, model in manager.models.items():
            if model.looks_at == "frames":
                size = model.image_size[1:]  # type: ignore[attr-defined]
                self._cameras[name] = CameraFrames(env, model.image_keys, size, advice=_ADVICE)  # type: ignore[attr-defined]
                self._cameras[name].check()
            elif model.looks_at == "episodes":
                raise ConfigError(
                    f"reward model '{model.model_type}' judges whole episodes, and a wrapper sees single steps; use it "
                    "with `rewardlab run`"
                )
        if self.autoreset != AutoresetMode.DISABLED and any(term.ends_episode for term in manager.terms):
            raise ConfigError(
                "reward.model.ends_episode: this vector environment resets by itself, when nobody has looked at the "
                "frame yet; wrap the single environments, or use AutoresetMode.DISABLED"
            )
        self._sees_transitions = len(self._cameras) < len(manager.models)

    def begin(self, obs: Any, mask: Bools | None = None) -> None:
        """Episodes begin, everywhere or where `mask` says, with the batch `obs`."""
        self._running = np.ones_like(self._running) if mask is None else self._running | to_numpy(mask).astype(bool)
        self._remember(obs)

    def of_step(self, step: Step) -> tuple[Tensor, dict[str, Tensor], Bools]:
        """The reward of each environment, the estimate of each term, NaN where its model was not asked, and whether the
        episode terminated, which a model with `ends_episode` may decide."""
        check_autoreset(self.autoreset, step.infos)
        running = self._running
        ended = (step.terminated | step.truncated) & running
        columns = {
            "env_reward": step.env_reward,
            "terminated": torch.from_numpy(step.terminated & running),
            "truncated": torch.from_numpy(step.truncated & running),
        }
        batch = TensorDict(columns, batch_size=[len(running)])
        if self._sees_transitions:
            batch["observation"], batch["next_observation"] = self._before, self._arrival(step, ended)
            batch["action"] = torch.as_tensor(step.action)
        estimates = {term.name: self._estimate(term, step, batch, running, ended) for term in self.manager.terms}
        batch[ESTIMATE] = estimates
        for term in self.manager.terms:
            if term.ends_episode and term.probability_map is not None:
                batch["terminated"] |= estimates[term.name] > term.probability_map.threshold
        terminated = batch["terminated"].numpy() | step.terminated
        ended = (terminated | step.truncated) & running
        self._running = {
            AutoresetMode.SAME_STEP: running,
            AutoresetMode.NEXT_STEP: ~ended,
            AutoresetMode.DISABLED: running & ~ended,
        }[self.autoreset]
        self._remember(step.obs)
        return compute_reward(self.manager.rule, batch), estimates, terminated

    def _estimate(self, term: RewardTerm, step: Step, batch: TensorDict, running: Bools, ended: Bools) -> Tensor:
        asked = ended if term.asked == "last_step" and not term.ends_episode else running
        rows = torch.from_numpy(asked)
        if not asked.any():
            found = torch.zeros(0)
        elif term.looks_at == "frames":
            found = self.manager.score(term.name, self._frames(self._cameras[term.name], step, asked, ended))
        else:
            found = self.manager.estimate(batch[rows], [term.name])[term.name]
        return place_estimates(found, rows)

    def _frames(self, cameras: CameraFrames, step: Step, asked: Bools, ended: Bools) -> dict[str, Any]:
        if asked.all():
            return {"images": cameras.following(step.obs, step.infos, ended)}
        if self.autoreset == AutoresetMode.SAME_STEP:  # not all of them: only those that ended
            return {"images": cameras.final(step.infos, np.flatnonzero(asked))}
        return {"images": cameras.now(step.obs, np.flatnonzero(asked))}

    def _remember(self, obs: Any) -> None:
        if self._sees_transitions:
            self._before = copy_observation(obs)

    def _arrival(self, step: Step, ended: Bools) -> TensorDict:
        arrival = copy_observation(step.obs)
        if self.autoreset == AutoresetMode.SAME_STEP and ended.any():
            rows = np.flatnonzero(ended)
            arrival[torch.from_numpy(rows)] = copy_observation(final_rows(step.infos["final_obs"], rows))
        return arrival


class BatchOfOne(VectorEnv[Any, Any, Any]):
    """What CameraFrames asks of a vector environment, answered by a single one. It is stepped elsewhere."""

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
        drawn = self.env.unwrapped.render_cameras(cameras, image_size=image_size)  # type: ignore[attr-defined]
        return {camera: to_numpy(picture)[None] for camera, picture in drawn.items()}


def with_batch_axis(obs: Any) -> Any:
    """An observation as a batch of one, without a copy."""
    if isinstance(obs, Mapping):
        return {name: with_batch_axis(part) for name, part in obs.items()}
    return obs if isinstance(obs, tuple) else to_numpy(obs)[None]
