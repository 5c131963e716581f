"""The Gymnasium faces of the table: N environments stepped as one batch, and one alone."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray

from rewardlab.envs.batched import BatchedEnv, Bools, Floats, Info
from rewardlab.envs.tabletop.camera import CAMERAS
from rewardlab.envs.tabletop.kept_states import KeptStates
from rewardlab.envs.tabletop.looks import Looks, Randomize, draw_looks
from rewardlab.envs.tabletop.render import Frames, render
from rewardlab.envs.tabletop.tasks import PROPRIO_SIZE, STATE_SIZE, TASKS, advance, observe
from rewardlab.envs.tabletop.world import World
from rewardlab.errors import ConfigError
from rewardlab.registry import unknown_name

Observation = Any  # a state array, or a dictionary of "state" and "images", as obs_mode says

EPISODE_STEPS = 50
SUCCESS_BONUS = 1.0
OBJECT_SCALES = (0.85, 1.15)
DISPLAY_SIZE = (256, 256)
OBS_MODES = ("state", "images", "state+images", "proprio+images")
REWARDS = ("dense", "sparse")
_RENDERING = {"render_modes": ["rgb_array"], "render_fps": 20}


class TabletopVectorEnv(BatchedEnv):
    """N tables, one process, one batch.

    Pictures cost time and are drawn only when asked for, by `render_cameras`; with `final=True` it draws the state in
    which an episode ended.
    """

    metadata = _RENDERING
    camera_names = CAMERAS

    def __init__(
        self,
        task: str = "PickCube",
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = EPISODE_STEPS,
        reward: str = "dense",
        obs_mode: str = "state",
        cameras: Sequence[str] = ("base_camera",),
        image_size: tuple[int, int] = (64, 64),
        success_hold_steps: int | None = None,
        action_repeat: int = 1,
        randomize: Mapping[str, bool] | bool = False,
        motion_noise: float = 0.0005,
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
    ) -> None:
        self.task = TASKS[task]()
        _check_choice("reward", reward, REWARDS)
        _check_choice("obs_mode", obs_mode, OBS_MODES)
        for camera in cameras:
            _check_choice("camera", camera, CAMERAS)
        if autoreset_mode not in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
            raise ConfigError(f"autoreset_mode {autoreset_mode} is not offered by tabletop: use SAME_STEP or DISABLED")
        actions = spaces.Box(-1.0, 1.0, (4,), np.float32)
        super().__init__(num_envs, _observation_space(obs_mode, cameras, image_size), actions, autoreset_mode)
        self.render_mode = render_mode
        self.max_episode_steps = max_episode_steps
        self.cameras = tuple(cameras)
        self.image_size = image_size
        self.success_hold_steps = success_hold_steps
        self.action_repeat = action_repeat
        self.randomize = _read_randomize(randomize)
        self.motion_noise = motion_noise
        self._reward = reward
        self._obs_mode = obs_mode
        self._steps = np.zeros(num_envs, np.int64)
        self._success_streak = np.zeros(num_envs, np.int64)
        self._success_once = np.zeros(num_envs, bool)
        # The state of every episode in progress, and the one in which each environment's last episode ended.
        self._now: tuple[World, Looks] | None = None
        self._ended: tuple[World, Looks] | None = None
        self._kept_count = 0
        self._kept: KeptStates | None = None

    def step(self, actions: Floats) -> tuple[Observation, Floats, Bools, Bools, Info]:
        world = self._world
        actions, dense = self._checked(actions), np.zeros(self.num_envs, np.float32)
        for _ in range(self.action_repeat):  # no episode ends in between: its limits count steps of the policy
            advance(self.task, world, actions, self.np_random, self.motion_noise)
            success = self.task.success(world)
            dense += (self.task.progress(world) + SUCCESS_BONUS * success).astype(np.float32)
        self._steps += 1
        if self._kept is not None:
            self._kept.add(self._everyone, world)
        self._success_once |= success
        self._success_streak = np.where(success, self._success_streak + 1, 0)
        rewards = {"dense_reward": dense, "sparse_reward": success.astype(np.float32)}
        terminated = self._reached(self._success_streak, self.success_hold_steps)
        truncated = self._reached(self._steps, self.max_episode_steps) & ~terminated
        facts = {**self._facts(success), **rewards}
        return self._end_step(rewards[f"{self._reward}_reward"], terminated, truncated, facts)

    def render(self) -> tuple[Frames, ...] | None:
        if self.render_mode is None:
            return None
        return tuple(self.render_cameras((CAMERAS[0],), DISPLAY_SIZE)[CAMERAS[0]])

    def render_cameras(
        self,
        cameras: Sequence[str] | None = None,
        image_size: tuple[int, int] | None = None,
        env_ids: NDArray[np.intp] | None = None,
        final: bool = False,
    ) -> dict[str, Frames]:
        """Pictures [n, H, W, 3] of the environments asked for, by camera: now, or (`final`) as their episode ended."""
        self._require_reset()
        ids = self._everyone if env_ids is None else np.asarray(env_ids)
        if final and not self._just_ended[ids].all():
            raise ValueError(
                f"no episode ended in the last step in environments {ids[~self._just_ended[ids]].tolist()}"
            )
        state = self._ended if final and self._autoreset else self._now
        assert state is not None
        world, looks = state[0].take(ids), state[1].take(ids)
        height, width = image_size or self.image_size
        return {
            c: render(self.task, world, looks, c, height, width) for c in (self.cameras if cameras is None else cameras)
        }

    def keep_last_states(self, count: int) -> bool:
        """From the next reset on, keep the last `count` states of each episode; return whether this is possible."""
        self._kept_count, self._kept = count if self._autoreset else 0, None
        return self._autoreset

    def render_last_states(
        self, cameras: Sequence[str], image_size: tuple[int, int] | None, env_ids: Sequence[int]
    ) -> list[dict[str, Frames]]:
        """Draw the last states of the episodes that ended in these environments: for each, [n, H, W, 3] by camera."""
        assert self._kept is not None, "call keep_last_states and reset first"
        assert self._ended is not None
        worlds = [self._kept.last(env) for env in env_ids]
        counts = [len(world.grip) for world in worlds]
        looks = self._ended[1].take(np.repeat(np.asarray(env_ids, np.intp), counts))
        height, width = image_size or self.image_size
        drawn = {c: render(self.task, World.join(worlds), looks, c, height, width) for c in cameras}
        parts = {camera: np.split(frames, np.cumsum(counts)[:-1]) for camera, frames in drawn.items()}
        return [{camera: parts[camera][place] for camera in cameras} for place in range(len(worlds))]

    @property
    def state(self) -> Floats:
        """Everything there is to know of every table, [n, STATE_SIZE], whatever is observed."""
        return observe(self._world)

    @property
    def _world(self) -> World:
        self._require_reset()
        assert self._now is not None
        return self._now[0]

    def _reached(self, count: NDArray[np.int64], limit: int | None) -> Bools:
        return np.zeros(self.num_envs, bool) if limit is None else count >= limit

    def _checked(self, actions: Floats) -> Floats:
        actions = np.asarray(actions, np.float32)
        if actions.shape != (self.num_envs, 4):
            raise ValueError(f"actions have shape {actions.shape}, expected {(self.num_envs, 4)}")
        finite = np.isfinite(actions).all(axis=1)
        if not finite.all():
            raise ValueError(
                f"the action of environment {int(finite.argmin())} is not finite: {actions[finite.argmin()]}"
            )
        return np.clip(actions, -1.0, 1.0)

    def _start(self, ids: NDArray[np.intp]) -> None:
        n = len(ids)
        rng = self.np_random
        scale = np.ones(n, np.float32)
        if self.randomize.object_size:
            scale = rng.uniform(*OBJECT_SCALES, n).astype(np.float32)
        world = self.task.start(n, rng, scale)
        looks = draw_looks(n, self.randomize, rng)
        if self._now is None or self._ended is None:
            self._now = world, looks
            self._ended = world.take(ids), looks.take(ids)
        else:
            for rows, ended, started in zip(self._now, self._ended, (world, looks), strict=True):
                ended.put(ids, rows.take(ids))
                rows.put(ids, started)
        if self._kept is None and self._kept_count:
            self._kept = KeptStates(self._kept_count, self._now[0])
        if self._kept is not None:
            self._kept.begin(ids)
            self._kept.add(ids, world)
        self._steps[ids] = 0
        self._success_streak[ids] = 0
        self._success_once[ids] = False

    def _facts(self, success: Bools | None = None) -> Info:
        success = self.task.success(self._world) if success is None else success
        return {"success": success, "success_once": self._success_once.copy(), "grasp": self._world.held.copy()}

    def _observe(self, ids: NDArray[np.intp]) -> Observation:
        world = self._world if len(ids) == self.num_envs else self._world.take(ids)
        state = observe(world)
        if self._obs_mode == "state":
            return state
        images = {"images": self.render_cameras(env_ids=ids)}
        if self._obs_mode == "images":
            return images
        return {"state": state if self._obs_mode == "state+images" else state[:, :PROPRIO_SIZE], **images}


class TabletopEnv(gymnasium.Env[Observation, Floats]):
    """One table, for tools that want a plain Gymnasium environment. Takes the arguments of the vector one.

    Without `max_episode_steps` it never truncates: `gymnasium.make` puts its own time limit around it.
    """

    metadata = _RENDERING
    camera_names = CAMERAS

    def __init__(
        self,
        task: str = "PickCube",
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **options: Any,
    ) -> None:
        self._table = TabletopVectorEnv(
            task, 1, max_episode_steps=max_episode_steps, autoreset_mode=AutoresetMode.DISABLED, **options
        )
        self.observation_space = self._table.single_observation_space
        self.action_space = self._table.single_action_space
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        super().reset(seed=seed)
        # The table draws from this environment's generator, which Gymnasium's tools seed and inspect.
        self._table.np_random = self.np_random
        observation, info = self._table.reset()
        return self._single(observation), _only(info)

    def step(self, action: Floats) -> tuple[Observation, float, bool, bool, Info]:
        observation, reward, terminated, truncated, info = self._table.step(np.asarray(action, np.float32)[None])
        return self._single(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), _only(info)

    def _single(self, observation: Observation) -> Observation:
        return next(iter(iterate(self._table.observation_space, observation)))

    def render(self) -> Frames | None:
        return None if self.render_mode is None else self.render_cameras((CAMERAS[0],), DISPLAY_SIZE)[CAMERAS[0]]

    def render_cameras(
        self, cameras: Sequence[str] | None = None, image_size: tuple[int, int] | None = None
    ) -> dict[str, Frames]:
        """Pictures [H, W, 3] by camera."""
        return {name: frames[0] for name, frames in self._table.render_cameras(cameras, image_size).items()}

    @staticmethod
    def render_together(
        envs: Sequence["TabletopEnv"], cameras: Sequence[str], image_size: tuple[int, int]
    ) -> dict[str, Frames]:
        """Pictures [n, H, W, 3] of several tables by camera, drawn at once: quicker than one after the other."""
        tables = [env._table for env in envs]
        if len({type(table.task) for table in tables}) > 1:
            single = [env.render_cameras(cameras, image_size) for env in envs]
            return {camera: np.stack([pictures[camera] for pictures in single]) for camera in cameras}
        world = World.join([table._world for table in tables])
        looks = Looks.join([table._now[1] for table in tables if table._now is not None])
        return {camera: render(tables[0].task, world, looks, camera, *image_size) for camera in cameras}


def _check_choice(kind: str, name: str, choices: Sequence[str]) -> None:
    if name not in choices:
        raise ConfigError(unknown_name(kind, name, choices))


def _read_randomize(randomize: Mapping[str, bool] | bool) -> Randomize:
    known = [f.name for f in dataclasses.fields(Randomize)]
    if isinstance(randomize, bool):
        return Randomize(**dict.fromkeys(known, randomize))
    if not isinstance(randomize, Mapping):
        raise ConfigError(f"randomize is {randomize!r}, expected true, false or a block of {', '.join(known)}")
    for name, value in randomize.items():
        _check_choice("randomize option", name, known)
        if not isinstance(value, bool):
            raise ConfigError(f"randomize.{name} is {value!r}, expected true or false")
    return Randomize(**randomize)


def _observation_space(obs_mode: str, cameras: Sequence[str], image_size: tuple[int, int]) -> spaces.Space[Any]:
    size = PROPRIO_SIZE if obs_mode.startswith("proprio") else STATE_SIZE
    state = spaces.Box(-1.0, 1.0, (size,), np.float32)  # metres and flags: nothing is a metre away
    if obs_mode == "state":
        return state
    images = spaces.Dict({c: spaces.Box(0, 255, (*image_size, 3), np.uint8) for c in cameras})
    return spaces.Dict({"images": images} if obs_mode == "images" else {"state": state, "images": images})


def _only(info: Info) -> Info:
    """The facts of a single environment as plain values."""
    return {key: value[0].item() for key, value in info.items() if not key.startswith("_")}
