"""A wrapper for Stable-Baselines3 that replaces the reward of a VecEnv by a learned one, scored as one batch.

    venv = RewardModelVecEnvWrapper(make_vec_env(make_env, n_envs=8), "runs/model/checkpoints/best_model")

Stable-Baselines3 is optional, so that this module is imported only when the wrapper is used.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rewardlab.data.episodes import Array
from rewardlab.envs.last_frame import LAST_FRAMES, ImageSize, LastFrameWrapper
from rewardlab.errors import DataError
from rewardlab.rewards.env_wrappers import RewardSource, info_key, reward_manager
from rewardlab.rewards.manager import RewardManager
from rewardlab.rewards.step_rewards import Step, StepRewards

try:
    from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("stable_baselines3"):
        raise
    text = "RewardModelVecEnvWrapper needs Stable-Baselines3, which is not installed: pip install 'rewardlab[sb3]'"
    raise ModuleNotFoundError(text, name=error.name) from None

_ADVICE = (
    ". The reward model looks at this camera. A VecEnv can draw it only if each of its environments is in a "
    "LastFrameWrapper (rewardlab.envs.wrappers): it resets them before the last frame of an episode could be drawn"
)


class RewardModelVecEnvWrapper(VecEnvWrapper):
    """Gives a VecEnv of Stable-Baselines3 the reward of `model`; the frames of a step are scored as one batch.

    Arguments and the keys of each `info` are those of RewardModelWrapper. The model stays in this process, also with a
    SubprocVecEnv. It comes before wrappers that change images or stack them (VecNormalize, VecFrameStack), and a
    VecMonitor outside of it reports the learned reward.
    """

    def __init__(
        self, venv: VecEnv, model: RewardSource, *, device: str | torch.device = "cpu", **settings: Any
    ) -> None:
        super().__init__(venv)
        self.manager = reward_manager(model, device, settings)
        self._drawing = DrawnVecEnv(venv, self.manager)
        self._rewards = StepRewards(self._drawing, self.manager, advice=_ADVICE)
        self._actions = np.zeros(0)

    def reset(self) -> Any:
        obs = self.venv.reset()
        self._rewards.begin(obs)
        return obs

    def step_async(self, actions: Array) -> None:
        self._actions = actions
        self.venv.step_async(actions)

    def step_wait(self) -> tuple[Any, Array, Array, list[dict[str, Any]]]:
        obs, env_reward, dones, infos = self.venv.step_wait()
        truncated = np.array([bool(info.get("TimeLimit.truncated")) for info in infos]) & dones
        infos = [dict(info) for info in infos]
        self._drawing.last_frames = [info.pop(LAST_FRAMES, None) for info in infos]
        final = {"final_obs": _last_observations(dones, infos)} if dones.any() else {}
        own = torch.from_numpy(np.asarray(env_reward, np.float32))
        step = Step(np.asarray(self._actions), obs, own, dones & ~truncated, truncated, final)
        reward, estimates, _ = self._rewards.compute(step)
        columns = {"env_reward": own.tolist()}
        columns |= {info_key(self.manager, name): estimate.tolist() for name, estimate in estimates.items()}
        for i, info in enumerate(infos):
            info |= {key: column[i] for key, column in columns.items() if column[i] == column[i]}  # NaN: not scored
        return obs, reward.numpy(), dones, infos


def _last_observations(dones: Array, infos: list[dict[str, Any]]) -> list[Any]:
    """Return the last observation of each episode that has ended, and None where it goes on."""
    for i in np.flatnonzero(dones):
        if infos[i].get("terminal_observation") is None:
            raise DataError(
                f"environment {i} ended an episode, but its info has no 'terminal_observation', the last frame: every "
                "VecEnv of Stable-Baselines3 gives it"
            )
    return [info.get("terminal_observation") for info in infos]


class DrawnVecEnv(VectorEnv[Any, Any, Any]):
    """A VecEnv as a vector environment that only draws cameras; it is stepped elsewhere."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, venv: VecEnv, manager: RewardManager) -> None:
        self.venv, self.num_envs, self.render_mode = venv, venv.num_envs, venv.render_mode
        self.observation_space = batch_space(venv.observation_space, venv.num_envs)
        self.last_frames: list[dict[ImageSize, dict[str, Array]] | None] = []  # of episodes that ended in this step
        if not all(venv.env_is_wrapped(LastFrameWrapper)):
            return
        self.render_cameras = self._render_cameras
        if venv.has_attr("camera_names"):
            self.camera_names = venv.get_attr("camera_names", 0)[0]
        kept: dict[ImageSize, dict[str, None]] = {}
        for term in manager.terms:
            for camera, size in term.frame_sizes.items():
                kept.setdefault(size.pixels, {})[camera] = None
        venv.env_method("keep_frames", {size: tuple(cameras) for size, cameras in kept.items()})

    def _render_cameras(
        self, cameras: Sequence[str], image_size: ImageSize, env_ids: Array | None, final: bool = False
    ) -> dict[str, Array]:
        ids = range(self.num_envs) if env_ids is None else env_ids.tolist()
        together = None if final else self._render_together(ids)
        if together is not None:
            return together(cameras, image_size)
        if final:
            frames = [self._last_frames(i)[image_size] for i in ids]
        else:
            frames = self.venv.env_method("render_cameras", cameras, image_size, indices=ids)
        return {camera: np.stack([pictures[camera] for pictures in frames]) for camera in cameras}

    def _render_together(self, ids: Sequence[int]) -> Callable[..., dict[str, Array]] | None:
        """Return a function that draws several environments at once, if they can do that."""
        if not isinstance(self.venv.unwrapped, DummyVecEnv):
            return None
        envs: list[Any] = [self.venv.unwrapped.envs[i].unwrapped for i in ids]
        if not hasattr(envs[0], "render_together") or len({type(env) for env in envs}) > 1:
            return None
        return functools.partial(envs[0].render_together, envs)

    def _last_frames(self, i: int) -> dict[ImageSize, dict[str, Array]]:
        frames = self.last_frames[i]
        if frames is None:
            raise DataError(
                f"environment {i} ended an episode, but its LastFrameWrapper did not see that: put it around the "
                "wrapper that ends episodes, such as a time limit"
            )
        return frames
