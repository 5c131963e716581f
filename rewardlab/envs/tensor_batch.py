"""A vector environment around a simulator that steps all environments as one batch of torch tensors on its device.

Observations and actions never leave that device here; what the simulator draws stays there too until it is asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from rewardlab.data.episodes import Array
from rewardlab.envs.cameras import Size
from rewardlab.envs.copies import Wanted, child_seeds
from rewardlab.errors import DataError
from rewardlab.keys import GRASP_KEYS, SUCCESS_KEYS
from rewardlab.observations import to_numpy

Info: TypeAlias = dict[str, Any]
FAIL = "fail"  # among the facts of a step: this state is a failure that ends the episode


class TensorSimulator(Protocol):
    """What a simulator of N environments offers; all values are tensors [N, ...] on `device`.

    `observation_space` and `action_space` are those of one environment.
    """

    num_envs: int
    device: torch.device
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    camera_names: tuple[str, ...]

    def reset(self, seeds: list[int] | None, rows: Tensor | None) -> tuple[Any, Mapping[str, Any]]:
        """Start over, everywhere or in these rows; return the observations and facts of all environments."""

    def step(self, actions: Tensor) -> tuple[Any, Tensor, Mapping[str, Any]]:
        """Return observations, rewards and facts, `success` among them."""

    def draw(self, cameras: Sequence[str], size: Size) -> dict[str, Tensor]:
        """Return the present frames uint8 [N, H, W, 3] by camera."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class SeenPictures:
    """The pictures that are a part of the observations, beside the state or alone."""

    cameras: tuple[str, ...]
    size: tuple[int, int]
    with_state: bool

    def space(self, simulator: TensorSimulator) -> spaces.Dict:
        """Return the space of one observation."""
        pictures: dict[str, Any] = {camera: spaces.Box(0, 255, (*self.size, 3), np.uint8) for camera in self.cameras}
        state: dict[str, spaces.Space[Any]] = {"state": simulator.observation_space} if self.with_state else {}
        return spaces.Dict({**state, "images": spaces.Dict(pictures)})


class TensorBatchEnv(VectorEnv[Any, Any, Any]):
    """Ends episodes after `max_episode_steps`, or after `success_hold_steps` steps of success in a row, and resets in
    the same step. Unlike copies, the environments are always drawn together.

    The reward is the simulator's, summed over the `action_repeat` steps of an action, or with `sparse` 1 if these end
    in success. A state that the simulator calls a failure (`fail`) ends an episode too: of the same action, no later
    reward, success or observation counts, but pictures are of its end.
    """

    def __init__(
        self,
        simulator: TensorSimulator,
        *,
        max_episode_steps: int,
        success_hold_steps: int | None = None,
        action_repeat: int = 1,
        sparse: bool = False,
        seen: SeenPictures | None = None,
    ) -> None:
        self._simulator = simulator
        self.num_envs = simulator.num_envs
        self._seen, self._sparse = seen, sparse
        self.single_observation_space = simulator.observation_space if seen is None else seen.space(simulator)
        self.single_action_space = simulator.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata = {**self.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.camera_names = simulator.camera_names
        self._limit, self._hold, self._repeat = max_episode_steps, success_hold_steps, action_repeat
        self._length = self._zeros(torch.int64)
        self._held = self._zeros(torch.int64)
        self._owners: dict[str, Wanted] = {}
        self._drawn: dict[tuple[str, Size], Tensor] = {}
        self._last_drawn: dict[tuple[str, Size], Tensor] = {}

    @property
    def device(self) -> torch.device:
        """Where observations are, and actions are expected."""
        return self._simulator.device

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        """Start over, everywhere or where `options["reset_mask"]` says."""
        mask = (options or {}).get("reset_mask")
        rows = None if mask is None else torch.from_numpy(np.flatnonzero(to_numpy(mask))).to(self.device)
        seeds = [child for child in child_seeds(seed, self.num_envs) if child is not None]
        return self._start(rows, seeds or None)

    def step(self, actions: Any) -> tuple[Any, Tensor, Tensor, Tensor, Info]:
        """Step all environments; NumPy arrays are accepted too. Everything returned is a tensor on `device`."""
        actions = torch.as_tensor(actions, device=self.device)
        self._drawn = {}
        reward, failed = self._zeros(torch.float32), self._zeros(torch.bool)
        state, infos = None, {}
        for _ in range(self._repeat):  # for all: a batch cannot stop where an episode has failed
            next_state, dense, found = self._simulator.step(actions)
            next_infos = _facts(found)
            reward = reward + torch.where(failed, 0.0, dense)
            if state is not None and FAIL in next_infos:
                next_state, next_infos = _choose(failed, state, next_state), _choose(failed, infos, next_infos)
            state, infos = _copy(next_state) if self._repeat > 1 else next_state, next_infos
            failed = failed | infos.get(FAIL, failed).bool()
        if self._sparse:
            reward = _flag(infos).float()
        observation = self._observe(state)
        self._length += 1
        self._held = torch.where(_flag(infos), self._held + 1, torch.zeros_like(self._held))
        terminated = failed if self._hold is None else failed | (self._held >= self._hold)
        truncated = (self._length >= self._limit) & ~terminated
        ended = terminated | truncated
        if bool(ended.any()):
            self._keep_last_frames()
            last = {"final_obs": _copy(observation), "final_info": infos, "_final_obs": ended, "_final_info": ended}
            observation, started = self._start(ended.nonzero().flatten(), None)
            infos = {**started, **last}
        return observation, reward, terminated, truncated, infos

    def keep_last_frames(self, owner: str, wanted: Wanted, env_ids: Array | None = None) -> None:
        """From now on, keep the last frames of these cameras at these sizes for `owner`; an empty one wants none.

        `env_ids` do not matter: all environments are drawn together.
        """
        self._owners[owner] = wanted

    def render_cameras(
        self, cameras: Sequence[str], image_size: Size = None, env_ids: Array | None = None, final: bool = False
    ) -> dict[str, Array]:
        """Return frames uint8 [n, H, W, 3] by camera, of all environments or of `env_ids`."""
        if final and (missing := [camera for camera in cameras if (camera, image_size) not in self._last_drawn]):
            raise DataError(f"the last frame of camera {missing[0]} was not drawn: call keep_last_frames first")
        drawn = {camera: self._last_drawn[camera, image_size] for camera in cameras} if final else None
        frames = self._draw(cameras, image_size) if drawn is None else drawn
        return {camera: to_numpy(found if env_ids is None else found[env_ids]) for camera, found in frames.items()}

    def close_extras(self, **kwargs: Any) -> None:
        self._simulator.close()

    def _start(self, rows: Tensor | None, seeds: list[int] | None) -> tuple[Any, Info]:
        self._drawn = {}
        state, found = self._simulator.reset(seeds, rows)
        self._length[slice(None) if rows is None else rows] = 0
        self._held[slice(None) if rows is None else rows] = 0
        return self._observe(state), _facts(found)

    def _observe(self, state: Any) -> Any:
        if self._seen is None:
            return state
        images = self._draw(self._seen.cameras, self._seen.size)
        return {"state": state, "images": images} if self._seen.with_state else {"images": images}

    def _draw(self, cameras: Sequence[str], size: Size) -> dict[str, Tensor]:
        """Return the present frames, which are drawn once."""
        if missing := [camera for camera in cameras if (camera, size) not in self._drawn]:
            drawn = self._simulator.draw(missing, size)
            self._drawn |= {(camera, size): frames for camera, frames in drawn.items()}
        return {camera: self._drawn[camera, size] for camera in cameras}

    def _keep_last_frames(self) -> None:
        for wanted in self._owners.values():
            for size, cameras in wanted.items():
                self._draw(cameras, size)
        self._last_drawn = self._drawn

    def _zeros(self, dtype: torch.dtype) -> Tensor:
        return torch.zeros(self.num_envs, dtype=dtype, device=self.device)


def _facts(found: Mapping[str, Any]) -> Info:
    """Return what is known of each environment under the package's names."""
    facts = {}
    for keys in (SUCCESS_KEYS, GRASP_KEYS):
        given = next((key for key in keys if key in found), None)
        if given is not None:
            facts[keys[0]] = found[given].clone()
    if FAIL in found:
        facts[FAIL] = found[FAIL].clone()
    return facts


def _flag(infos: Info) -> Tensor:
    success = infos.get(SUCCESS_KEYS[0])
    if success is None:
        raise DataError("the simulator does not report success; expected it among the facts of a step")
    return success.bool()


def _copy(observation: Any) -> Any:
    if isinstance(observation, Mapping):
        return {key: _copy(value) for key, value in observation.items()}
    return observation.clone()


def _choose(rows: Tensor, there: Any, elsewhere: Any) -> Any:
    """Return one observation's rows where `rows` is true, and the other's elsewhere."""
    if isinstance(elsewhere, Mapping):
        return {key: _choose(rows, there[key], value) for key, value in elsewhere.items()}
    return torch.where(rows.reshape(-1, *[1] * (elsewhere.ndim - 1)), there, elsewhere)
