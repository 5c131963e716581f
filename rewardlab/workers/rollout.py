"""Collects rollouts: RolloutWorker chooses actions, Lanes runs all environment and rollout workers together.

A lane is an EnvWorker and the RolloutWorker that chooses its actions. On Ray the calls below return immediately:
actions and observations go directly from worker to worker, all lanes run in parallel, and reward workers score frames
while the rollout continues.
"""

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn

from rewardlab.data.episodes import Array
from rewardlab.data.packed_batch import PackedBatch
from rewardlab.devices import device_of, seeded_generator, to_device
from rewardlab.errors import ProcessDied
from rewardlab.models.policy_networks import ActorCritic
from rewardlab.observations import Observation, has_tensors, to_batch
from rewardlab.reports.run_log import ENV_PROCESS
from rewardlab.rewards.manager import ESTIMATE, MODEL_VERSION, place_estimates
from rewardlab.types import Batch
from rewardlab.workers.env import Episodes, Images, StepObservation
from rewardlab.workers.group import Future, Group, WorkerDied
from rewardlab.workers.reward import FrameScores

SCORED_STEPS = 4  # steps whose frames are scored together, while the next steps are collected
ATTEMPTS = 3  # number of times that a rollout is collected at most, if workers die


class RolloutWorker:
    """Chooses the actions of one EnvWorker. Random numbers depend on (seed, iteration) only.

    Only actions leave the policy's device in each step; its other outputs follow once, in `fetch`.
    """

    def __init__(self, policy: nn.Module, action_space: spaces.Space[Any], *, seed: int) -> None:
        self.policy = policy
        self.device = device_of(policy)
        self.action_space = action_space
        self.seed = seed
        self._critic = policy if isinstance(policy, ActorCritic) else None
        self._outputs: list[TensorDict] = []
        self._next_values: list[Tensor] = []

    def ping(self) -> None:
        """Do nothing; raises WorkerDied if the process is gone."""

    def load_policy(self, weights: Mapping[str, Tensor]) -> None:
        self.policy.load_state_dict(weights)

    def begin(self, iteration: int, attempt: int = 0, *, at_random: bool = False) -> None:
        """Prepare for the first action of an iteration. With `at_random`, actions are uniformly random."""
        seeds = np.random.SeedSequence([self.seed, iteration, attempt]).generate_state(2)
        self._generator = seeded_generator(int(seeds[0]), self.device)
        self._random = np.random.default_rng(int(seeds[1])) if at_random else None
        self._outputs, self._next_values = [], []

    def act(self, current: StepObservation) -> Any:
        """Return the actions [N] for the current observations: a tensor if these are tensors, else an array."""
        observation = self._read(current.observation)
        if self._random is not None:
            chosen = self._random_actions(len(observation)).to(self.device)
            output = TensorDict({"action": chosen}, batch_size=observation.batch_size)
        else:
            output = self.policy.act(observation, self._generator)  # type: ignore[operator]
        if self._critic is not None and self._outputs:
            self._next_values.append(self._next_value(current, output["value"]))
        self._outputs.append(output)
        return output["action"] if has_tensors(current.observation) else output["action"].cpu().numpy()

    def _read(self, observation: Observation) -> Batch:
        return to_device(to_batch(observation), self.device)

    def fetch(self, current: StepObservation) -> Batch:
        """Return the policy's outputs [T, N] since the last call; `current` are the observations after the last one."""
        batch: Batch = TensorDict.stack(self._outputs)
        if self._critic is not None:
            with torch.no_grad():
                last = self._critic.value(self._read(current.observation))
            batch["next_value"] = torch.stack([*self._next_values, self._next_value(current, last)])
        self._outputs, self._next_values = [], []
        return batch.cpu()

    @torch.no_grad()
    def _next_value(self, current: StepObservation, value: Tensor) -> Tensor:
        """Return the values of the next observations; where an episode ended, that of its last observation."""
        assert self._critic is not None
        if current.final_observation is None:
            return value
        next_value = value.clone()
        ended = torch.tensor(current.ended, device=self.device)  # what came through Ray is read-only
        next_value[ended] = self._critic.value(self._read(current.final_observation))
        return next_value

    def _random_actions(self, count: int) -> Tensor:
        assert self._random is not None
        if isinstance(self.action_space, spaces.Discrete):
            return torch.from_numpy(self._random.integers(0, int(self.action_space.n), count))
        assert isinstance(self.action_space, spaces.Box)
        low, high = self.action_space.low, self.action_space.high
        return torch.from_numpy(self._random.uniform(low, high, (count, *low.shape)).astype(np.float32))


@dataclass(frozen=True)
class Rollout:
    """A rollout of T steps of all environments."""

    batch: PackedBatch  # [T, N], with the estimates of models that look at frames
    frames: "RolloutFrames | None"  # None if no model looks at frames
    episodes: Episodes  # that ended in the rollout
    waiting_time: float  # seconds between the last step and the last estimate
    after_reset: bool  # all environments were reset before the first step
    replaced: tuple[str, ...] = ()  # labels of the workers that died; the rollout was collected again after each


class RolloutFrames:
    """The scored frames of a rollout. They are transferred from the environment workers only when they are read."""

    def __init__(self, parts: list[Future[Images]], sizes: list[int], order: Tensor, scored: Tensor) -> None:
        self.scored = scored  # bool [T, N]: the steps that have a frame
        self._parts = parts
        self._starts = np.cumsum([0, *sizes])
        self._order = order.numpy()

    def select(self, rows: Array) -> Images:
        """Return the images of some of the scored steps by camera; rows count the scored steps in batch order."""
        positions = self._order[rows]
        part_of = np.searchsorted(self._starts, positions, side="right") - 1
        parts = {part: self._parts[part].result() for part in np.unique(part_of)}
        indices = list(zip(part_of, positions - self._starts[part_of], strict=True))
        return {
            camera: np.stack([parts[part][camera][index] for part, index in indices])
            for camera in next(iter(parts.values()))
        }

    def all(self) -> Images:
        """Return the images of all scored steps by camera, in batch order."""
        parts = [part.result() for part in self._parts]
        return {camera: np.concatenate([part[camera] for part in parts])[self._order] for camera in parts[0]}


class Lanes:
    """Collects rollouts from all lanes: pairs of an EnvWorker and the RolloutWorker that chooses its actions."""

    def __init__(self, envs: Group, policies: Group, rewards: Group | None, *, collecting: bool = False) -> None:
        self.envs = envs
        self.policies = policies
        self.rewards = rewards
        self._observations: list[Future[StepObservation] | None] = [None] * len(envs)
        self._num_envs: list[int] = []  # of each environment worker, once they have been asked
        self._collecting = collecting  # environment workers write episodes to disk
        self.collection_states: list[dict[str, Any]] = []  # of each of them, after the last rollout

    def begin_collecting(self, states: Sequence[dict[str, Any]]) -> None:
        """Let environment workers go on collecting where they were in these states; {"run": name} is a first start."""
        if self._collecting:
            for worker, state in zip(self.envs, states, strict=True):
                worker.submit("load_collection_state", state).result()
            self._remember_collecting(states)

    def _remember_collecting(self, states: Sequence[dict[str, Any]]) -> None:
        self.collection_states = list(states)
        for worker, state in zip(self.envs, states, strict=True):
            worker.remember("load_collection_state", (state,), {})

    def collect(self, iteration: int, steps: int, *, reset: bool, at_random: bool = False) -> Rollout:
        """Collect `steps` steps of all environments; with `reset`, reset all of them first.

        If a worker dies, or a process that steps environments for it, it is restarted and the rollout is collected
        again after a reset; the steps of the failed attempt are dropped, so that nothing is counted twice.
        """
        replaced: list[str] = []
        for attempt in range(ATTEMPTS):
            try:
                rollout = self._collect(iteration, attempt, steps, reset or attempt > 0, at_random)
                return replace(rollout, replaced=tuple(replaced))
            except ProcessDied as error:
                if attempt == ATTEMPTS - 1:
                    raise
                replacing = "the worker is restarted and the rollout collected again"
                if not isinstance(error, WorkerDied):  # its worker has replaced it already
                    replacing = "the rollout is collected again"
                    replaced.append(ENV_PROCESS)
                warnings.warn(f"{error}; {replacing}", RuntimeWarning, stacklevel=2)
                replaced += self._restart_dead_workers()
        raise AssertionError("unreachable")

    def _collect(self, iteration: int, attempt: int, steps: int, reset: bool, at_random: bool) -> Rollout:
        scores: list[list[Future[FrameScores]]] = [[] for _ in self.envs]
        frames: list[list[Future[Images]]] = [[] for _ in self.envs]
        self.policies.call("begin", iteration, attempt, at_random=at_random).result()
        if reset:
            self._observations = list(self.envs.call("begin", iteration, attempt))
        for t in range(steps):
            for lane, (env, policy) in enumerate(zip(self.envs, self.policies, strict=True)):
                action = policy.submit("act", self._observations[lane])
                self._observations[lane] = env.submit("step", action)
                if self.rewards is not None and ((t + 1) % SCORED_STEPS == 0 or t == steps - 1):
                    images = env.submit("fetch_frames")
                    frames[lane].append(images)
                    position = self._frame_position(iteration * steps + t, t % SCORED_STEPS + 1, lane)
                    # In terminal mode all frames may come in the last step, so all reward workers share them.
                    for part, worker in enumerate(self.rewards):
                        share = {"part": (part, len(self.rewards)), "position": position}
                        scores[lane].append(worker.submit("score", images, retry=True, **share))
        actions = [policy.submit("fetch", self._observations[lane]) for lane, policy in enumerate(self.policies)]
        transitions = self.envs.call("fetch")
        lanes = [_join(chosen.result(), made.result()) for chosen, made in zip(actions, transitions, strict=True)]
        batch = PackedBatch.cat(lanes, dim=1)
        episodes = Episodes.concatenate(self.envs.call("fetch_episodes").result())
        if self._collecting:  # waits for the disk: an episode of a complete rollout is never lost with its worker
            self._remember_collecting(self.envs.call("collection_state").result())
        if self.rewards is None:
            return Rollout(batch, None, episodes, 0.0, reset)
        start = time.perf_counter()
        parts = [[future.result() for future in lane] for lane in scores]
        waiting_time = time.perf_counter() - start
        scored = self._add_estimates(batch.rows, [lane.rows for lane in lanes], parts, frames)
        return Rollout(batch, scored, episodes, waiting_time, reset)

    def _frame_position(self, step: int, steps: int, lane: int) -> int:
        """Return the position, among all frames of the run, of a lane's first frame of the last `steps` steps.

        If not every step has a frame, some positions stay unused.
        """
        if not self._num_envs:
            self._num_envs = self.envs.call("num_envs").result()
        return (step + 1 - steps) * sum(self._num_envs) + steps * sum(self._num_envs[:lane])

    def _add_estimates(
        self,
        batch: Batch,
        lanes: list[Batch],
        scores: list[list[FrameScores]],
        frames: list[list[Future[Images]]],
    ) -> RolloutFrames:
        """Add the estimates of frames and their model versions to the batch; return the frames."""
        assert self.rewards is not None
        parts = list(chain(*scores))
        names = list(parts[0].estimates)
        sizes = [len(part.estimates[names[0]]) for part in parts]
        counts = [sum(len(part.estimates[names[0]]) for part in lane) for lane in scores]
        scored, order = _scored_steps(lanes, counts)
        batch[ESTIMATE] = {
            name: place_estimates(torch.cat([part.estimates[name] for part in parts])[order], scored) for name in names
        }
        batch[MODEL_VERSION] = {
            name: torch.full(batch.batch_size, parts[0].versions[name], dtype=torch.int32) for name in names
        }
        split = len(self.rewards)  # number of parts that each set of frames was split into
        sizes = [sum(sizes[first : first + split]) for first in range(0, len(sizes), split)]
        return RolloutFrames(list(chain(*frames)), sizes, order, scored)

    def _restart_dead_workers(self) -> list[str]:
        """Return the labels of the workers that were dead."""
        dead = []
        for worker in chain(self.envs, self.policies):
            try:
                worker.submit("ping").result()
            except WorkerDied:
                worker.restart()
                dead.append(worker.label)
        return dead


def _join(actions: Batch, transitions: PackedBatch) -> PackedBatch:
    return PackedBatch(actions.update(transitions.rows), transitions.frames)


def _scored_steps(lanes: list[Batch], counts: list[int]) -> tuple[Tensor, Tensor]:
    """Return a mask [T, N] of the steps of the batch that have a frame, and the position of each of these frames.

    The positions, in batch order, are those in the concatenation of the lanes' frames.
    """
    scored, positions, first = [], [], 0
    for lane, count in zip(lanes, counts, strict=True):
        has_frame = torch.ones(lane.batch_size, dtype=torch.bool)
        if count != lane.numel():  # terminal mode: only the last frame of each episode
            has_frame = lane["terminated"] | lane["truncated"]
        position = torch.full(lane.batch_size, -1)
        position[has_frame] = first + torch.arange(count)
        scored.append(has_frame)
        positions.append(position)
        first += count
    mask = torch.cat(scored, dim=1)
    return mask, torch.cat(positions, dim=1)[mask]
