"""A vector environment of copies of a single environment, which can also be drawn.

Copies are held by groups. A group is a set of copies in one process; what happens in a copy depends on its seed only,
never on how copies are shared out.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, SupportsFloat, TypeAlias

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from rewardlab.data.episodes import Array
from rewardlab.envs.cameras import Frame, Size, camera_names, draw_cameras
from rewardlab.errors import DataError

Info: TypeAlias = dict[str, Any]
Wanted: TypeAlias = Mapping[Size, Sequence[str]]  # cameras by the size of their frames
MakeCopy: TypeAlias = Callable[[], gymnasium.Env[Any, Any]]  # can be pickled


@dataclass(frozen=True)
class CopyStep:
    """What a step of one copy returned. If the episode ended, `observation` and `info` are of the next one's start."""

    observation: Any
    reward: SupportsFloat
    terminated: bool
    truncated: bool
    info: Info
    final_observation: Any = None
    final_info: Info | None = None


@dataclass(frozen=True)
class KeptState:
    """A state that can be drawn later, and the frames of it that were drawn already."""

    state: Any
    drawn: dict[tuple[str, Size], Frame]


class EnvCopy:
    """One of the environments: resets itself where an episode ends, and keeps what the last frame is drawn from.

    An environment with `keep_state()` and `draw_state(state, cameras, size)` is drawn later, if somebody asks. Of
    another, the last frames that `keep_last_frames` asked for are drawn before the reset. A frame is drawn once,
    however often it is asked for.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env = env
        self._keeps_state = hasattr(env.unwrapped, "keep_state")
        self._wanted: Wanted = {}
        self._drawn: dict[tuple[str, Size], Frame] = {}
        self._last_drawn: dict[tuple[str, Size], Frame] = {}
        self._last_state: Any = None
        self._states: deque[KeptState] = deque(maxlen=0)  # the last states of this episode
        self._ended_states: deque[KeptState] = deque()  # of the episode before it
        self.frames_drawn = 0

    def keep_last_frames(self, wanted: Wanted) -> None:
        """From now on, draw these cameras at these sizes at the end of each episode."""
        self._wanted = wanted

    def keep_last_states(self, count: int) -> bool:
        """From now on, keep the last `count` states of each episode; return whether the environment can do that."""
        if self._keeps_state:
            self._states = deque(maxlen=count)
        return self._keeps_state

    def reset(self, seed: int | None, options: Info | None) -> tuple[Any, Info]:
        self._drawn = {}
        self._ended_states, self._states = self._states, deque(maxlen=self._states.maxlen)
        result = self.env.reset(seed=seed, options=options)
        self._keep_state()
        return result

    def step(self, action: Any) -> CopyStep:
        self._drawn = {}
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not (terminated or truncated):
            self._keep_state()
            return CopyStep(observation, reward, False, False, info)
        self._keep_last_frame()
        last, last_info = deepcopy(observation), info
        observation, info = self.reset(None, None)
        return CopyStep(observation, reward, bool(terminated), bool(truncated), info, last, last_info)

    def draw(self, cameras: Sequence[str], size: Size, *, final: bool) -> dict[str, Frame]:
        """Return the present frame of each camera, or that of the last episode's end."""
        if final:
            return self._draw(self._last_drawn, cameras, size, self._last_state, final=True)
        return self._draw(self._drawn, cameras, size)

    def draw_last_states(self, cameras: Sequence[str], size: Size) -> dict[str, Array]:
        """Return the frames [n, H, W, 3] of the kept states of the last episode by camera, in time order."""
        frames = [self._draw(kept.drawn, cameras, size, kept.state, final=True) for kept in self._ended_states]
        return {camera: np.stack([frame[camera] for frame in frames]) for camera in cameras}

    def _draw(
        self,
        drawn: dict[tuple[str, Size], Frame],
        cameras: Sequence[str],
        size: Size,
        state: Any = None,
        *,
        final: bool = False,
    ) -> dict[str, Frame]:
        """Return the frames in `drawn`, after adding those that are missing: of the present, or of a kept state."""
        if missing := [camera for camera in cameras if (camera, size) not in drawn]:
            if final and state is None:
                raise DataError(f"the last frame of camera {missing[0]} was not drawn: call keep_last_frames first")
            self.frames_drawn += len(missing)
            inner: Any = self.env.unwrapped
            found = inner.draw_state(state, missing, size) if final else draw_cameras(self.env, missing, size)
            drawn |= {(camera, size): found[camera] for camera in missing}
        return {camera: drawn[camera, size] for camera in cameras}

    def _keep_state(self) -> None:
        if self._states.maxlen:
            inner: Any = self.env.unwrapped
            self._states.append(KeptState(inner.keep_state(), self._drawn))

    def _keep_last_frame(self) -> None:
        self._last_drawn, self._last_state = self._drawn, None
        if self._keeps_state:
            inner: Any = self.env.unwrapped
            self._last_state = inner.keep_state()
            self._states.append(KeptState(self._last_state, self._drawn))
        else:
            for size, cameras in self._wanted.items():
                self.draw(cameras, size, final=False)


class CopyGroup:
    """Some of the copies, all in this process."""

    def __init__(self, makers: Sequence[MakeCopy]) -> None:
        self.copies = [EnvCopy(make()) for make in makers]

    def reset(self, rows: Sequence[int], seeds: Sequence[int | None], options: Info | None) -> list[tuple[Any, Info]]:
        return [self.copies[row].reset(seed, options) for row, seed in zip(rows, seeds, strict=True)]

    def step(self, actions: Sequence[Any]) -> list[CopyStep]:
        return [copy.step(action) for copy, action in zip(self.copies, actions, strict=True)]

    def draw(self, rows: Sequence[int], cameras: Sequence[str], size: Size, *, final: bool) -> dict[str, Array]:
        frames = [self.copies[row].draw(cameras, size, final=final) for row in rows]
        return {camera: np.stack([frame[camera] for frame in frames]) for camera in cameras}

    def draw_last_states(self, rows: Sequence[int], cameras: Sequence[str], size: Size) -> list[dict[str, Array]]:
        return [self.copies[row].draw_last_states(cameras, size) for row in rows]

    def keep_last_frames(self, wanted: Wanted) -> None:
        for copy in self.copies:
            copy.keep_last_frames(wanted)

    def keep_last_states(self, count: int) -> bool:
        return all([copy.keep_last_states(count) for copy in self.copies])

    def call(self, rows: Sequence[int], name: str, *args: Any) -> list[Any]:
        """Return what a method of each environment returns, or the value of an attribute."""
        found = [self.copies[row].env.get_wrapper_attr(name) for row in rows]
        return [value(*args) if callable(value) else value for value in found]

    def close(self) -> None:
        for copy in self.copies:
            copy.env.close()


class CopiesVectorEnv(VectorEnv[Any, Any, Any]):
    """N copies, stepped as one batch; each is reset in the step that ends its episode, as Gymnasium's SAME_STEP says.

    `reset(seed=...)` gives each copy a child of the seed. `render_cameras` draws the present, or (`final`) the last
    frames of the episodes that ended in the last step; who will ask for those says so by `keep_last_frames`.
    """

    def __init__(self, makers: Sequence[MakeCopy]) -> None:
        self.num_envs = len(makers)
        self._group = CopyGroup(makers)
        first = self._group.copies[0].env
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = first.render_mode
        self.spec = first.spec
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.camera_names = camera_names(first)
        self._observations: Any = create_empty_array(self.single_observation_space, self.num_envs)
        self._latest: list[Any] = [None] * self.num_envs
        self._owners: dict[str, Wanted] = {}

    def reset(self, *, seed: int | Sequence[int | None] | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Start over, everywhere or where `options["reset_mask"]` says."""
        seeds = child_seeds(seed, self.num_envs)
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        rows = np.arange(self.num_envs) if mask is None else np.flatnonzero(mask)
        results = self._group.reset(rows.tolist(), [seeds[row] for row in rows], options or None)
        infos: Info = {}
        for row, (observation, info) in zip(rows.tolist(), results, strict=True):
            self._latest[row] = observation
            infos = self._add_info(infos, info, row)
        return self._observed(), infos

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Info]:
        results = self._group.step(list(iterate(self.action_space, actions)))
        infos: Info = {}
        for row, result in enumerate(results):
            if result.final_info is not None:
                last = {"final_obs": result.final_observation, "final_info": result.final_info}
                infos = self._add_info(infos, last, row)
            infos = self._add_info(infos, result.info, row)
            self._latest[row] = result.observation
        rewards = np.array([float(result.reward) for result in results])
        terminated = np.array([result.terminated for result in results], bool)
        truncated = np.array([result.truncated for result in results], bool)
        return self._observed(), rewards, terminated, truncated, infos

    def keep_last_frames(self, owner: str, wanted: Wanted) -> None:
        """From now on, keep the last frames of these cameras at these sizes for `owner`; an empty one wants none."""
        self._owners[owner] = wanted
        union: dict[Size, list[str]] = {}
        for one in self._owners.values():
            for size, cameras in one.items():
                union[size] = list(dict.fromkeys([*union.get(size, ()), *cameras]))
        self._group.keep_last_frames({size: cameras for size, cameras in union.items() if cameras})

    def render_cameras(
        self, cameras: Sequence[str], image_size: Size = None, env_ids: Array | None = None, final: bool = False
    ) -> dict[str, Array]:
        """Return frames uint8 [n, H, W, 3] by camera, of all environments or of `env_ids`."""
        rows = range(self.num_envs) if env_ids is None else [int(row) for row in env_ids]
        return self._group.draw(list(rows), cameras, image_size, final=final)

    def keep_last_states(self, count: int) -> bool:
        """From now on, keep the last `count` states of each episode; return whether the environments can do that."""
        return self._group.keep_last_states(count)

    def render_last_states(
        self, cameras: Sequence[str], image_size: Size, env_ids: Sequence[int]
    ) -> list[dict[str, Array]]:
        """Draw the last states of the episodes that ended in these environments: for each, [n, H, W, 3] by camera."""
        return self._group.draw_last_states(env_ids, cameras, image_size)

    def call(self, name: str, *args: Any) -> tuple[Any, ...]:
        """Return what a method of each environment returns, or the value of an attribute."""
        return tuple(self._group.call(range(self.num_envs), name, *args))

    def close_extras(self, **kwargs: Any) -> None:
        self._group.close()

    def _observed(self) -> Any:
        self._observations = concatenate(self.single_observation_space, self._latest, self._observations)
        return deepcopy(self._observations)


def child_seeds(seed: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    """Return a seed for each of `count` environments; children of neighbouring seeds have nothing in common."""
    if seed is None:
        return [None] * count
    if isinstance(seed, (int, np.integer)):
        return [int(child) for child in np.random.SeedSequence(int(seed)).generate_state(count)]
    if len(seed) != count:
        raise ValueError(f"seed has {len(seed)} values; expected one for each of the {count} environments")
    return list(seed)
