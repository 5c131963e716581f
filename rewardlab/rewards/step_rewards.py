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
from rewardlab.rewards.classifier import SuccessClassifier
from rewardlab.rewards.manager import RewardManager

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

    What belongs to no step of an episode (the reset step of NEXT_STEP, steps after an end of DISABLED) is not scored:
    the model's reward is 0 there, as it is before the end of an episode in terminal mode.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], manager: RewardManager) -> None:
        self.manager = manager
        self.autoreset = autoreset_mode(env)
        self._running = np.zeros(env.num_envs, bool)
        self._inputs: _Frames | _Transitions
        if isinstance(manager.model, SuccessClassifier):
            self._inputs = _Frames(env, manager.model)
        elif manager.model.by_episode:
            raise ConfigError(
                f"reward model '{manager.model.model_type}' judges whole episodes, and a wrapper sees single steps; "
                "use it with `rewardlab run`"
            )
        else:
            # With other modes the manager adds the environment's reward, which must not come in twice.
            shown = manager.config.combine_mode == "replace"
            self._inputs = _Transitions(self.autoreset, with_env_reward=shown)

    def begin(self, obs: Any, mask: Bools | None = None) -> None:
        """Episodes begin, everywhere or where `mask` says, with the batch `obs`."""
        self._running = np.ones_like(self._running) if mask is None else self._running | to_numpy(mask).astype(bool)
        self._inputs.begin(obs)

    def of_step(self, step: Step) -> tuple[Tensor, Tensor, Bools]:
        """The reward of each environment, the model's score (NaN where it was not asked), and where it was asked."""
        check_autoreset(self.autoreset, step.infos)
        running = self._running
        ended = (step.terminated | step.truncated) & running
        self._running = {
            AutoresetMode.SAME_STEP: running,
            AutoresetMode.NEXT_STEP: ~ended,
            AutoresetMode.DISABLED: running & ~ended,
        }[self.autoreset]
        scored = running if self.manager.config.reward_mode == "per_step" else ended
        score = torch.full_like(step.env_reward, torch.nan)
        model_reward = torch.zeros_like(step.env_reward)
        if scored.any():
            found = self.manager.score(self._inputs.of(step, scored, ended)).flatten().float().cpu()
            rows = torch.from_numpy(scored)
            score[rows], model_reward[rows] = found, self.manager.reward_of(found)
        self._inputs.begin(step.obs)
        return self.manager.combine(step.env_reward, model_reward), score, scored


class _Frames:
    """Success classifiers look at the frame that followed the action."""

    def __init__(self, env: VectorEnv[Any, Any, Any], model: SuccessClassifier) -> None:
        self._frames = CameraFrames(env, model.image_keys, model.image_size[1:], advice=_ADVICE)
        self._frames.check()

    def begin(self, obs: Any) -> None:
        """The frame before an action tells nothing about it."""

    def of(self, step: Step, scored: Bools, ended: Bools) -> Any:
        if scored.all():
            return self._frames.following(step.obs, step.infos, ended)
        if self._frames.autoreset == AutoresetMode.SAME_STEP:  # not all of them: only those that ended
            return self._frames.final(step.infos, np.flatnonzero(scored))
        return self._frames.now(step.obs, np.flatnonzero(scored))


class _Transitions:
    """Other reward models look at whole transitions."""

    def __init__(self, autoreset: AutoresetMode, *, with_env_reward: bool) -> None:
        self._autoreset = autoreset
        self._with_env_reward = with_env_reward
        self._before = TensorDict()

    def begin(self, obs: Any) -> None:
        self._before = copy_observation(obs)

    def of(self, step: Step, scored: Bools, ended: Bools) -> TensorDict:
        arrival = copy_observation(step.obs)
        if self._autoreset == AutoresetMode.SAME_STEP and ended.any():
            rows = np.flatnonzero(ended)
            arrival[torch.from_numpy(rows)] = copy_observation(final_rows(step.infos["final_obs"], rows))
        columns = {
            "observation": self._before,
            "next_observation": arrival,
            "action": torch.as_tensor(step.action),
            "terminated": torch.from_numpy(step.terminated),
            "truncated": torch.from_numpy(step.truncated),
        }
        if self._with_env_reward:
            columns["reward"] = step.env_reward
        return TensorDict(columns, batch_size=[len(ended)])[torch.from_numpy(scored)]


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
