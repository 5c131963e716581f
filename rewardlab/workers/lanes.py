"""Rollouts from pairs of workers: an EnvWorker and the RolloutWorker that acts for it, a pair a lane.

On Ray every call below only says what is to be done: actions and observations go from worker to worker, all lanes run
side by side, and frames are scored while the rollout goes on.
"""

import time
import warnings
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from rewardlab.data.episodes import Array
from rewardlab.types import Batch
from rewardlab.workers.env import Arrival, Episodes, Images
from rewardlab.workers.group import Future, Group, WorkerDied
from rewardlab.workers.reward import Scores

SCORED_STEPS = 4  # steps whose frames are scored together, while the next ones are made
ATTEMPTS = 3


@dataclass(frozen=True)
class Rollout:
    """What T steps of all environments gave."""

    batch: Batch  # [T, N]
    scores: Scores | None  # of the frames that were scored, in the order of the batch; None without a reward model
    episodes: Episodes  # that ended in it
    waited: float  # seconds, for scores that were not there when the last step was made
    frames: "ScoredFrames | None"
    afresh: bool  # it does not go on where the last one ended: all its episodes began in it


class ScoredFrames:
    """The pictures of a rollout that were scored. They stay where they are until somebody asks for some."""

    def __init__(self, parts: list[Future[Images]], sizes: list[int], order: Tensor) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *sizes])
        self._order = order.numpy()

    def __call__(self, rows: Array) -> Images:
        """By camera, the pictures of these rows of the scores."""
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
        scores: list[list[Future[Scores]]] = [[] for _ in self.envs]
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
            return Rollout(batch, None, episodes, 0.0, None, afresh)
        start = time.perf_counter()
        parts = [[future.result() for future in lane] for lane in scores]
        order = _order(lanes, [sum(len(part.reward) for part in lane) for lane in parts])
        estimate, reward = (torch.cat(column)[order] for column in zip(*chain(*parts), strict=True))
        waited = time.perf_counter() - start
        sizes = [len(part.reward) for part in chain(*parts)]
        together = len(self.rewards)  # parts that were cut from the same pictures
        sizes = [sum(sizes[first : first + together]) for first in range(0, len(sizes), together)]
        seen = ScoredFrames(list(chain(*frames)), sizes, order)
        return Rollout(batch, Scores(estimate, reward), episodes, waited, seen, afresh)

    def _scored(self, pictures: Future[Images]) -> list[Future[Scores]]:
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


def _order(lanes: list[Batch], counts: list[int]) -> Tensor:
    """Where each scored frame of the whole batch [T, N] lies when the lanes' frames are put one behind the other."""
    if len(lanes) == 1:
        return torch.arange(counts[0])
    places, number = [], 0
    for lane, count in zip(lanes, counts, strict=True):
        scored = torch.ones(lane.batch_size, dtype=torch.bool)
        if count != lane.numel():  # terminal: the last frames alone
            scored = lane["terminated"] | lane["truncated"]
        place = torch.full(lane.batch_size, -1)
        place[scored] = number + torch.arange(count)
        places.append(place)
        number += count
    whole = torch.cat(places, dim=1)
    return whole[whole >= 0]


def _joined(parts: list[Episodes]) -> Episodes:
    def column(name: str) -> Any:
        columns = [getattr(part, name) for part in parts]
        return None if any(c is None for c in columns) else np.concatenate(columns)

    return Episodes(*(column(name) for name in ("reward", "length", "success_once", "success_at_end")))
