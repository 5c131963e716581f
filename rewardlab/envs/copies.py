"""A vector environment of copies of a single environment, which can also be drawn.

Copies are held by groups. A group is a set of copies in one process, this one (`CopyGroup`) or another
(`processes.ProcessGroup`); what happens in a copy depends on its seed only, never on how copies are shared out. Of K
groups, each has every K-th copy: so all have as much to draw where only the first few copies are drawn.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from rewardlab.data.episodes import Array
from rewardlab.envs.cameras import Frame, Size, camera_names, draw_cameras, drawing_layer
from rewardlab.envs.closing import closed_after_errors
from rewardlab.envs.processes import ProcessGroup, start_groups
from rewardlab.envs.seed_check import CHECKED, FIXED_START, SLOW_RESET, warn_about_seeds
from rewardlab.envs.shared_memory import SharedMemory, is_shareable, shared_observations
from rewardlab.errors import DataError, ProcessDied

Info: TypeAlias = dict[str, Any]
Wanted: TypeAlias = Mapping[Size, Sequence[str]]  # cameras by the size of their frames
MakeCopy: TypeAlias = Callable[[], gymnasium.Env[Any, Any]]  # can be pickled


@dataclass(frozen=True)
class CopyStep:
    """What a step of one copy returned. If the episode ended, `observation` and `info` are of the next one's start."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: Info
    final_observation: Any = None
    final_info: Info | None = None

    def without_observation(self) -> "CopyStep":
        return replace(self, observation=None)


@dataclass(frozen=True)
class CopyDescription:
    """What all copies have in common."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None
    spec: EnvSpec | None  # without what builds the environment
    camera_names: tuple[str, ...]


@dataclass(frozen=True)
class KeptState:
    """A state that can be drawn later, and the frames of it that were drawn already."""

    state: Any
    drawn: dict[tuple[str, Size], Frame]


class EnvCopy:
    """One of the environments: resets itself where an episode ends, and keeps what the last frame is drawn from.

    The last frames that `keep_last_frames` asked for are drawn before the reset, or, of an environment with
    `keep_state()` and `draw_state(state, cameras, size)`, later, if somebody asks. A frame is drawn once, however often
    it is asked for.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env = env
        # A wrapper that draws shows something else than the state of the environment inside of it.
        self._keeps_state = hasattr(env.unwrapped, "keep_state") and drawing_layer(env) is env.unwrapped
        self._wanted: Wanted = {}
        self._drawn: dict[tuple[str, Size], Frame] = {}
        self._last = KeptState(None, {})
        self._states: deque[KeptState] = deque(maxlen=0)  # the last states of this episode
        self._ended_states: deque[KeptState] = deque()  # of the episode before it

    def keep_last_frames(self, wanted: Wanted) -> None:
        """From now on, draw these cameras at these sizes at the end of each episode."""
        self._wanted = wanted

    def keep_last_states(self, count: int) -> bool:
        """From now on, keep the last `count` states of each episode; return whether the environment can do that."""
        self._states = deque(maxlen=count if self._keeps_state else 0)
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
        self._keep_state()
        if not (terminated or truncated):
            return CopyStep(observation, float(reward), False, False, info)
        self._keep_last_frame()
        last, last_info = deepcopy(observation), info
        observation, info = self.reset(None, None)
        return CopyStep(observation, float(reward), bool(terminated), bool(truncated), info, last, last_info)

    def draw(self, cameras: Sequence[str], size: Size, *, final: bool) -> dict[str, Frame]:
        """Return the present frame of each camera, or that of the last episode's end."""
        if final:
            return self._draw_kept(self._last, cameras, size)
        if missing := [camera for camera in cameras if (camera, size) not in self._drawn]:
            found = draw_cameras(self.env, missing, size)
            self._drawn |= {(camera, size): found[camera] for camera in missing}
        return {camera: self._drawn[camera, size] for camera in cameras}

    def draw_last_states(self, cameras: Sequence[str], size: Size) -> dict[str, Array]:
        """Return the frames [n, H, W, 3] of the kept states of the last episode by camera, in time order."""
        frames = [self._draw_kept(kept, cameras, size) for kept in self._ended_states]
        return {camera: np.stack([frame[camera] for frame in frames]) for camera in cameras}

    def _draw_kept(self, kept: KeptState, cameras: Sequence[str], size: Size) -> dict[str, Frame]:
        if missing := [camera for camera in cameras if (camera, size) not in kept.drawn]:
            if kept.state is None:
                raise DataError(f"the last frame of camera {missing[0]} was not drawn: call keep_last_frames first")
            inner: Any = self.env.unwrapped
            found = inner.draw_state(kept.state, missing, size)
            kept.drawn.update({(camera, size): found[camera] for camera in missing})
        return {camera: kept.drawn[camera, size] for camera in cameras}

    def _keep_state(self) -> None:
        if self._states.maxlen:
            inner: Any = self.env.unwrapped
            self._states.append(KeptState(inner.keep_state(), self._drawn))

    def _keep_last_frame(self) -> None:
        self._last = KeptState(None, {})
        if not self._wanted:
            return
        if self._states:
            self._last = self._states[-1]
        elif self._keeps_state:
            inner: Any = self.env.unwrapped
            self._last = KeptState(inner.keep_state(), self._drawn)
        else:
            for size, cameras in self._wanted.items():
                self.draw(cameras, size, final=False)
            self._last = KeptState(None, self._drawn)


class CopyGroup:
    """Some of the copies, all in this process."""

    def __init__(self, makers: Sequence[MakeCopy]) -> None:
        self.copies: list[EnvCopy] = []
        self._result: Any = None
        with closed_after_errors(self.close):
            for make in makers:
                self.copies.append(EnvCopy(make()))

    def submit(self, method: str, *args: Any) -> None:
        """Call a method; `collect` returns its result."""
        self._result = getattr(self, method)(*args)

    def collect(self) -> Any:
        return self._result

    def describe(self) -> CopyDescription:
        env = self.copies[0].env
        spaces = env.observation_space, env.action_space
        return CopyDescription(*spaces, env.metadata, env.render_mode, _without_makers(env.spec), camera_names(env))

    def reset(self, rows: Sequence[int], seeds: Sequence[int | None], options: Info | None) -> list[tuple[Any, Info]]:
        return [self.copies[row].reset(seed, options) for row, seed in zip(rows, seeds, strict=True)]

    def step(self, actions: Sequence[Any]) -> list[CopyStep]:
        return [copy.step(action) for copy, action in zip(self.copies, actions, strict=True)]

    def draw(self, rows: Sequence[int], cameras: Sequence[str], size: Size, final: bool) -> dict[str, Array]:
        frames = [self.copies[row].draw(cameras, size, final=final) for row in rows]
        return {camera: np.stack([frame[camera] for frame in frames]) for camera in cameras}

    def draw_last_states(self, rows: Sequence[int], cameras: Sequence[str], size: Size) -> list[dict[str, Array]]:
        return [self.copies[row].draw_last_states(cameras, size) for row in rows]

    def keep_last_states(self, count: int) -> bool:
        return all([copy.keep_last_states(count) for copy in self.copies])

    def keep_last_frames(self, wanted: Sequence[Wanted]) -> None:
        for copy, one in zip(self.copies, wanted, strict=True):
            copy.keep_last_frames(one)

    def call(self, rows: Sequence[int], name: str, *args: Any) -> list[Any]:
        """Return what a method of each environment returns, or the value of an attribute."""
        found = [self.copies[row].env.get_wrapper_attr(name) for row in rows]
        return [value(*args) if callable(value) else value for value in found]

    def close(self) -> None:
        with ExitStack() as each:  # whatever happens to the others
            for copy in reversed(self.copies):
                each.callback(copy.env.close)


class ThreadGroup:
    """Some of the copies, stepped in a thread of this process: for environments that mostly wait, such as robots."""

    def __init__(self, makers: Sequence[MakeCopy]) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="copies")
        self._group = CopyGroup(makers)
        self._result: Future[Any] | None = None

    def submit(self, method: str, *args: Any) -> None:
        """Call a method of CopyGroup; `collect` returns its result."""
        self._result = self._thread.submit(getattr(self._group, method), *args)

    def collect(self) -> Any:
        assert self._result is not None
        return self._result.result()

    def describe(self) -> CopyDescription:
        return self._group.describe()

    def close(self) -> None:
        for copy in self._group.copies:  # it may be moving to its start, or wait for a person, who would have to come
            getattr(copy.env.unwrapped, "interrupt", lambda: None)()
        self._thread.shutdown()
        self._group.close()


class CopiesVectorEnv(VectorEnv[Any, Any, Any]):
    """N copies, stepped as one batch; each is reset in the step that ends its episode, as Gymnasium's SAME_STEP says.

    `reset(seed=...)` gives each copy a child of the seed. `render_cameras` draws the present, or (`final`) the last
    frames of the episodes that ended in the last step; who will ask for those says so by `keep_last_frames`.

    The first seeded reset of an environment with a `name` checks that seeds mean something to it. With `processes`
    above 1, copies are shared out to so many other processes, and every method may raise ProcessDied:
    then all environments must be reset. With `in_threads`, each copy has a thread of this process instead.
    """

    def __init__(
        self, makers: Sequence[MakeCopy], processes: int = 1, name: str | None = None, *, in_threads: bool = False
    ) -> None:
        self.num_envs = len(makers)
        processes = self.num_envs if in_threads else processes
        self._name = name
        self._memory: SharedMemory | None = None
        self._rows = [range(group, self.num_envs, processes) for group in range(processes)]
        self._groups: Sequence[CopyGroup | ThreadGroup | ProcessGroup]
        if in_threads:
            self._groups = groups = []
            with closed_after_errors(self.close_extras):
                for make in makers:
                    groups.append(ThreadGroup([make]))
            first = groups[0].describe()
        elif processes == 1:
            group = CopyGroup(makers)
            self._groups, first = [group], group.describe()
        else:
            self._memory = SharedMemory()
            self._groups, first = start_groups(name or str(makers[0]), makers, self._rows, self._memory)
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = first.render_mode
        self.spec = first.spec
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.camera_names = first.camera_names
        self._latest: list[Any] = [None] * self.num_envs
        self._owners: dict[str, list[Wanted]] = {}
        self._share_observations()

    def reset(self, *, seed: int | Sequence[int | None] | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Start over, everywhere or where `options["reset_mask"]` says."""
        seeds = child_seeds(seed, self.num_envs)
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        rows = list(range(self.num_envs)) if mask is None else np.flatnonzero(mask).tolist()
        start = time.monotonic()
        results = self._reset(rows, seeds, options or None)
        unchecked = self._name is not None and self._name not in CHECKED
        if unchecked and seed is not None and mask is None and time.monotonic() - start < SLOW_RESET:
            results = self._check_seeds(results, seeds, options or None)
        infos: Info = {}
        for row, (_, info) in zip(rows, results, strict=True):
            infos = self._add_info(infos, info, row)
        return self._observed(), infos

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Info]:
        chosen = actions if isinstance(actions, np.ndarray) else list(iterate(self.action_space, actions))
        if len(chosen) != self.num_envs:
            raise ValueError(f"found {len(chosen)} actions, expected one for each of the {self.num_envs} environments")
        answers = self._ask("step", [(chosen[rows.start :: rows.step],) for rows in self._rows])
        results: list[CopyStep] = [answers[row % len(answers)][row // len(answers)] for row in range(self.num_envs)]
        infos: Info = {}
        for row, result in enumerate(results):
            if result.final_info is not None:
                last = {"final_obs": result.final_observation, "final_info": result.final_info}
                infos = self._add_info(infos, last, row)
            infos = self._add_info(infos, result.info, row)
            self._latest[row] = result.observation
        rewards = np.array([result.reward for result in results])
        terminated = np.array([result.terminated for result in results], bool)
        truncated = np.array([result.truncated for result in results], bool)
        return self._observed(), rewards, terminated, truncated, infos

    def keep_last_frames(self, owner: str, wanted: Wanted, env_ids: Array | None = None) -> None:
        """From now on, keep the last frames of these cameras at these sizes for `owner`; an empty one wants none.

        With `env_ids`, only those of some environments.
        """
        rows = range(self.num_envs) if env_ids is None else {int(row) for row in env_ids}
        self._owners[owner] = [wanted if row in rows else {} for row in range(self.num_envs)]
        merged = [_merge(by_owner) for by_owner in zip(*self._owners.values(), strict=True)]
        self._set_up("keep_last_frames", [(merged[rows.start :: rows.step],) for rows in self._rows])

    def render_cameras(
        self, cameras: Sequence[str], image_size: Size = None, env_ids: Array | None = None, final: bool = False
    ) -> dict[str, Array]:
        """Return frames uint8 [n, H, W, 3] by camera, of all environments or of `env_ids`."""
        rows = list(range(self.num_envs)) if env_ids is None else [int(row) for row in env_ids]
        parts, places = self._ask_by_group("draw", rows, tuple(cameras), image_size, final)
        drawn = {camera: np.concatenate([part[camera] for part in parts]) for camera in cameras}
        if places != sorted(places):
            drawn = {camera: frames[places] for camera, frames in drawn.items()}
        return drawn

    def keep_last_states(self, count: int) -> bool:
        """From now on, keep the last `count` states of each episode; return whether the environments can do that."""
        return all(self._set_up("keep_last_states", [(count,)] * len(self._groups)))

    def render_last_states(
        self, cameras: Sequence[str], image_size: Size, env_ids: Sequence[int]
    ) -> list[dict[str, Array]]:
        """Draw the last states of the episodes that ended in these environments: for each, [n, H, W, 3] by camera."""
        return self._ask_rows("draw_last_states", env_ids, tuple(cameras), image_size)

    def call(self, name: str, *args: Any) -> tuple[Any, ...]:
        """Return what a method of each environment returns, or the value of an attribute."""
        return tuple(self._ask_rows("call", range(self.num_envs), name, *args))

    def close_extras(self, **kwargs: Any) -> None:
        with ExitStack() as each:  # the last one first, whatever happens to the others
            if self._memory is not None:
                each.callback(self._memory.close)
            for group in self._groups:
                each.callback(group.close)

    def _reset(self, rows: list[int], seeds: Sequence[int | None], options: Info | None) -> list[tuple[Any, Info]]:
        results = self._ask_rows("reset", rows, options, each=[[seeds[row] for row in rows]])
        for row, (observation, _) in zip(rows, results, strict=True):
            self._latest[row] = observation
        return results

    def _check_seeds(
        self, results: list[tuple[Any, Info]], seeds: Sequence[int | None], options: Info | None
    ) -> list[tuple[Any, Info]]:
        """Reset the first copy again with its seed, and warn if that leads elsewhere; return the newest results."""
        first, *others = iterate(self.observation_space, self._observed())
        newest = self._reset([0], seeds, options)
        again = next(iter(iterate(self.observation_space, self._observed())))
        fixed_start = bool(self.metadata.get(FIXED_START))
        warn_about_seeds(str(self._name), first, again, others[0] if others else None, fixed_start=fixed_start)
        return [*newest, *results[1:]]

    def _ask_rows(self, method: str, rows: Sequence[int], *args: Any, each: Sequence[Sequence[Any]] = ()) -> list[Any]:
        """Return what a method of groups says of each of these rows."""
        answers, places = self._ask_by_group(method, rows, *args, each=each)
        found = [value for answer in answers for value in answer]
        return [found[place] for place in places]

    def _ask_by_group(
        self, method: str, rows: Sequence[int], *args: Any, each: Sequence[Sequence[Any]] = ()
    ) -> tuple[list[Any], list[int]]:
        """Call a method of every group that has some of the rows; return its answers, and where in them each row is.

        The method is given the rows of its group, by the group's own numbers, then from each sequence in `each` the
        values of these rows, then `args`.
        """
        groups = len(self._rows)
        order = sorted(range(len(rows)), key=lambda place: (rows[place] % groups, rows[place]))
        calls: list[tuple[Any, ...] | None] = []
        for group in range(groups):
            own = [place for place in order if rows[place] % groups == group]
            values = ([one[place] for place in own] for one in each)
            calls.append(([rows[place] // groups for place in own], *values, *args) if own else None)
        return self._ask(method, calls), np.argsort(order).tolist()

    def _ask(self, method: str, shares: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        """Call a method of every group that has a share of the arguments, at the same time in all processes."""
        asked = [(group, args) for group, args in zip(self._groups, shares, strict=True) if args is not None]
        for group, args in asked:
            group.submit(method, *args)
        results, errors = [], []
        for group, _ in asked:
            try:
                results.append(group.collect())
            except Exception as error:
                errors.append(error)
        if errors:
            raise next((error for error in errors if not isinstance(error, ProcessDied)), errors[0])
        return results

    def _set_up(self, method: str, shares: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of every group that is called again in a process that replaces another."""
        for group, args in zip(self._groups, shares, strict=True):
            if isinstance(group, ProcessGroup):
                group.remember(method, *args)
        return self._ask(method, shares)

    def _share_observations(self) -> None:
        space = self.single_observation_space
        self._shared = self._memory is not None and is_shareable(space)
        if self._memory is not None and self._shared:
            self._observations = shared_observations(space, self.num_envs, self._memory)
            self._set_up("share_observations", [(self.num_envs, rows) for rows in self._rows])
        else:
            self._observations = create_empty_array(space, self.num_envs)

    def _observed(self) -> Any:
        if not self._shared:
            self._observations = concatenate(self.single_observation_space, self._latest, self._observations)
        return deepcopy(self._observations)


def _merge(by_owner: Sequence[Wanted]) -> Wanted:
    """Return the cameras at each size that at least one owner wants."""
    union: dict[Size, list[str]] = {}
    for one in by_owner:
        for size, cameras in one.items():
            union[size] = list(dict.fromkeys([*union.get(size, ()), *cameras]))
    return {size: cameras for size, cameras in union.items() if cameras}


def child_seeds(seed: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    """Return a seed for each of `count` environments; children of neighbouring seeds have nothing in common."""
    if seed is None:
        return [None] * count
    if isinstance(seed, (int, np.integer)):
        return [int(child) for child in np.random.SeedSequence(int(seed)).generate_state(count)]
    if len(seed) != count:
        raise ValueError(f"seed has {len(seed)} values; expected one for each of the {count} environments")
    return list(seed)


def _without_makers(spec: EnvSpec | None) -> EnvSpec | None:
    """Return a spec without what builds the environment: a lambda among it could not be sent to another process."""
    if spec is None:
        return None
    return replace(spec, entry_point=None, vector_entry_point=None, kwargs={}, additional_wrappers=())
