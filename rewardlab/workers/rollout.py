"""Rollouts: workers that act for environments, and all pairs of these together.

A lane is an EnvWorker and the RolloutWorker that acts for it. On Ray every call below only says what is to be done:
actions and observations go from worker to worker, all lanes run side by side, and frames are scored by the reward
workers while the rollout goes on.
"""

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn

from rewardlab.data.episodes import Array
from rewardlab.models.policy_networks import ActorCritic
from rewardlab.observations import to_batch
from rewardlab.rewards.manager import ESTIMATE, MODEL_VERSION, place_estimates
from rewardlab.types import Batch
from rewardlab.workers.env import Arrival, Episodes, Images
from rewardlab.workers.group import Future, Group, WorkerDied
from rewardlab.workers.reward import FrameScores

SCORED_STEPS = 4  # steps whose frames are scored together, while the next ones are made
ATTEMPTS = 3


class RolloutWorker:
    """Acts for one EnvWorker. Like there, randomness follows from (seed, iteration)."""

    def __init__(self, policy: nn.Module, action_space: spaces.Space[Any], *, seed: int) -> None:
        self.policy = policy
        self.action_space = action_space
        self.seed = seed
        self._critic = policy if isinstance(policy, ActorCritic) else None
        self._answers: list[TensorDict] = []
        self._next_values: list[Tensor] = []

    def ping(self) -> None:
        """Whether it lives."""

    def load_policy(self, weights: Mapping[str, Tensor]) -> None:
        self.policy.load_state_dict(weights)

    def begin(self, iteration: int, attempt: int = 0, *, at_random: bool = False) -> None:
        """Before the first action of an iteration. `at_random`: without the policy, as before it has learned."""
        words = np.random.SeedSequence([self.seed, iteration, attempt]).generate_state(2)
        self._generator = torch.Generator().manual_seed(int(words[0]))
        self._random = np.random.default_rng(int(words[1])) if at_random else None
        self._answers, self._next_values = [], []

    def act(self, arrival: Arrival) -> Array:
        """Actions [N] for where the last step led to."""
        answer = self._answer(arrival)
        if self._critic is not None and self._answers:
            self._next_values.append(self._following_value(arrival, answer["value"]))
        self._answers.append(answer)
        return np.asarray(answer["action"].numpy())

    def fetch(self, arrival: Arrival) -> Batch:
        """What was done since the last call, [T, N]; `arrival` is where the last action led to."""
        if self._critic is not None:
            with torch.no_grad():
                last = self._critic.value(to_batch(arrival.observation))
            self._next_values.append(self._following_value(arrival, last))
        batch: Batch = TensorDict.stack(self._answers)
        if self._critic is not None:
            batch["next_value"] = torch.stack(self._next_values)
        self._answers, self._next_values = [], []
        return batch

    def _answer(self, arrival: Arrival) -> TensorDict:
        observation = to_batch(arrival.observation)
        if self._random is not None:
            return TensorDict({"action": self._sampled(len(observation))}, batch_size=observation.batch_size)
        return self.policy.act(observation, self._generator)  # type: ignore[operator]

    @torch.no_grad()
    def _following_value(self, arrival: Arrival, value: Tensor) -> Tensor:
        """The value of what truly followed: of the last observation of an episode, not of the next one's first."""
        assert self._critic is not None
        if arrival.final_observation is None:
            return value
        following = value.clone()
        following[torch.from_numpy(arrival.ended)] = self._critic.value(to_batch(arrival.final_observation))
        return following

    def _sampled(self, count: int) -> Tensor:
        assert self._random is not None
        if isinstance(self.action_space, spaces.Discrete):
            return torch.from_numpy(self._random.integers(0, int(self.action_space.n), count))
        assert isinstance(self.action_space, spaces.Box)
        low, high = self.action_space.low, self.action_space.high
        return torch.from_numpy(self._random.uniform(low, high, (count, *low.shape)).astype(np.float32))


@dataclass(frozen=True)
class Rollout:
    """What T steps of all environments gave."""

    batch: Batch  # [T, N], with the estimates of models that look at frames
    frames: "RolloutFrames | None"  # None if no model looks at frames
    episodes: Episodes  # that ended in it
    waited: float  # seconds, for estimates that were not there when the last step was made
    afresh: bool  # it does not continue the last one: all its episodes began in it


class RolloutFrames:
    """The frames of a rollout that were scored. They stay in the env workers' results until somebody asks for some."""

    def __init__(self, parts: list[Future[Images]], sizes: list[int], order: Tensor, scored: Tensor) -> None:
        self.scored = scored  # bool [T, N]: the steps that have a frame
        self._parts = parts
        self._starts = np.cumsum([0, *sizes])
        self._order = order.numpy()

    def __call__(self, rows: Array) -> Images:
        """By camera, the pictures of some of the scored steps, numbered in the order of the batch."""
        places = self._order[rows]
        part_of = np.searchsorted(self._starts, places, side="right") - 1
        parts = {part: self._parts[part].result() for part in np.unique(part_of)}
        return {
            camera: np.stack(
                [parts[p][camera][place - self._starts[p]] for p, place in zip(part_of, places, strict=True)]
            )
            for camera in next(iter(parts.values()))
        }

    def all(self) -> Images:
        whole = [part.result() for part in self._parts]
        return {camera: np.concatenate([part[camera] for part in whole])[self._order] for camera in whole[0]}


class Lanes:
    """All environments as one batch [T, N], whatever number of workers they are spread over."""

    def __init__(self, envs: Group, policies: Group, rewards: Group | None) -> None:
        self.envs = envs
        self.policies = policies
        self.rewards = rewards
        self._arrivals: list[Future[Arrival] | None] = [None] * len(envs)
        self._begun: tuple[int, int] | None = None

    def roll(self, iteration: int, steps: int, *, afresh: bool, at_random: bool = False) -> Rollout:
        """`steps` further steps; `afresh` starts every episode anew, as at the beginning of a run.

        If a worker dies, it is replaced and the rollout is made again from the start, of new episodes: what the dead
        one had seen is lost, and nothing is counted twice.
        """
        for attempt in range(ATTEMPTS):
            try:
                return self._roll(iteration, attempt, steps, afresh or attempt > 0, at_random)
            except WorkerDied as error:
                if attempt == ATTEMPTS - 1:
                    raise
                warnings.warn(f"{error}; it is replaced, and the rollout made again", RuntimeWarning, stacklevel=2)
                self._revive()
        raise AssertionError("unreachable")

    def _roll(self, iteration: int, attempt: int, steps: int, afresh: bool, at_random: bool) -> Rollout:
        scores: list[list[Future[FrameScores]]] = [[] for _ in self.envs]
        frames: list[list[Future[Images]]] = [[] for _ in self.envs]
        self.policies.call("begin", iteration, attempt, at_random=at_random).result()
        if afresh:
            self._arrivals = list(self.envs.call("begin", iteration, attempt))
        for t in range(steps):
            for lane, (env, policy) in enumerate(zip(self.envs, self.policies, strict=True)):
                action = policy.submit("act", self._arrivals[lane])
                self._arrivals[lane] = env.submit("step", action)
                if self.rewards is not None and ((t + 1) % SCORED_STEPS == 0 or t == steps - 1):
                    pictures = env.submit("fetch_frames")
                    frames[lane].append(pictures)
                    scores[lane] += self._scored(pictures)
        acted = [policy.submit("fetch", arrival) for policy, arrival in zip(self.policies, self._arrivals, strict=True)]
        happened = self.envs.call("fetch")
        lanes = [a.result().update(h.result()) for a, h in zip(acted, happened, strict=True)]
        batch: Batch = TensorDict.cat(lanes, dim=1)
        episodes = _joined(self.envs.call("fetch_episodes").result())
        if self.rewards is None:
            return Rollout(batch, None, episodes, 0.0, afresh)
        start = time.perf_counter()
        parts = [[future.result() for future in lane] for lane in scores]
        waited = time.perf_counter() - start
        return Rollout(batch, self._add_estimates(batch, lanes, parts, frames), episodes, waited, afresh)

    def _add_estimates(
        self,
        batch: Batch,
        lanes: list[Batch],
        scores: list[list[FrameScores]],
        frames: list[list[Future[Images]]],
    ) -> RolloutFrames:
        """Write what models said of the frames into the batch; the frames in the order of the batch."""
        assert self.rewards is not None
        every = list(chain(*scores))
        names = list(every[0].estimates)
        sizes = [len(part.estimates[names[0]]) for part in every]
        counts = [sum(len(part.estimates[names[0]]) for part in lane) for lane in scores]
        scored, order = _scored_steps(lanes, counts)
        batch[ESTIMATE] = {
            name: place_estimates(torch.cat([part.estimates[name] for part in every])[order], scored) for name in names
        }
        batch[MODEL_VERSION] = {
            name: torch.full(batch.batch_size, every[0].versions[name], dtype=torch.int32) for name in names
        }
        together = len(self.rewards)  # parts that were cut from the same pictures
        sizes = [sum(sizes[first : first + together]) for first in range(0, len(sizes), together)]
        return RolloutFrames(list(chain(*frames)), sizes, order, scored)

    def _scored(self, pictures: Future[Images]) -> list[Future[FrameScores]]:
        """Every reward worker takes its share: in terminal mode all frames may come at once, in the last step."""
        assert self.rewards is not None
        count = len(self.rewards)
        return [w.submit("score", pictures, part=(k, count), retry=True) for k, w in enumerate(self.rewards)]

    def _revive(self) -> None:
        for group in (self.envs, self.policies):
            for index, worker in enumerate(group):
                try:
                    worker.submit("ping").result()
                except WorkerDied:
                    group.restart(index)


def _scored_steps(lanes: list[Batch], counts: list[int]) -> tuple[Tensor, Tensor]:
    """Which steps [T, N] of the whole batch have a frame, and where each of these frames is, in the order of the batch,
    when the frames of the lanes are put one behind the other."""
    scored, places, number = [], [], 0
    for lane, count in zip(lanes, counts, strict=True):
        has_frame = torch.ones(lane.batch_size, dtype=torch.bool)
        if count != lane.numel():  # terminal: the last frames alone
            has_frame = lane["terminated"] | lane["truncated"]
        place = torch.full(lane.batch_size, -1)
        place[has_frame] = number + torch.arange(count)
        scored.append(has_frame)
        places.append(place)
        number += count
    whole = torch.cat(scored, dim=1)
    return whole, torch.cat(places, dim=1)[whole]


def _joined(parts: list[Episodes]) -> Episodes:
    def column(name: str) -> Any:
        columns = [getattr(part, name) for part in parts]
        return None if any(c is None for c in columns) else np.concatenate(columns)

    return Episodes(*(column(name) for name in ("reward", "length", "success_once", "success_at_end")))
