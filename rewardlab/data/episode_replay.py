"""A ring of whole episodes: rows are drawn together with something of another row of the same episode."""

from typing import Any, Literal, get_args

import torch
from tensordict import TensorDict
from torch import Tensor

from rewardlab.data.frame_store import FrameStore
from rewardlab.data.replay import FRAME, ReplayBuffer, columns_of
from rewardlab.errors import DataError
from rewardlab.registry import unknown_name
from rewardlab.types import Batch

Strategy = Literal["final", "future", "episode"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)

_PLACE = "place_in_episode"  # the column that says how many rows of the same episode come "before" and "after"


class WholeEpisodes:
    """Puts rollouts that follow each other together: gives out the episodes that have ended, holds the rest back."""

    def __init__(self) -> None:
        self.forget()

    def __len__(self) -> int:
        """Steps that are held back."""
        return len(self._env)

    def forget(self) -> None:
        """Drop unfinished episodes. To be called whenever the environments are reset: else what comes next would be
        taken for the rest of the same episodes."""
        self.unfinished: Batch | None = None  # flat, environment by environment
        self._env = torch.zeros(0, dtype=torch.int64)  # whose row it is
        self._num_envs: int | None = None

    def add(self, rollout: Batch) -> Batch | None:
        """Take what followed the last rollout [T, N]; the rows [n] of episodes that have ended, one after the other."""
        self._check(rollout)
        steps, envs = rollout.batch_size
        self._num_envs = envs
        rows: Batch = rollout.permute(1, 0).reshape(-1)
        env = torch.arange(envs).repeat_interleave(steps)
        if self.unfinished is not None:
            rows, env = TensorDict.cat([self.unfinished, rows]), torch.cat([self._env, env])
        order = env.argsort(stable=True)
        rows, env = rows[order], env[order]
        ends = _ends(rows).nonzero().squeeze(-1)
        last_end = torch.full((envs,), -1).scatter_reduce(0, env[ends], ends, "amax")
        ended = torch.arange(len(rows)) <= last_end[env]
        self.unfinished, self._env = rows[~ended], env[~ended]
        return rows[ended] if len(ends) else None

    def _check(self, rollout: Batch) -> None:
        if rollout.batch_dims != 2:
            raise DataError(f"the rollout has batch size {list(rollout.batch_size)}; expected [T, N]")
        if self._num_envs not in (None, rollout.batch_size[1]):
            raise DataError(
                f"the rollout is of {rollout.batch_size[1]} environments, unfinished episodes of {self._num_envs}: "
                "forget them where environments start afresh"
            )


class EpisodeReplay(ReplayBuffer):
    """A ReplayBuffer whose episodes lie in one piece each, in time order, and enter when they have ended.

    The oldest rows make room as in any ring, so that the eldest episode may have lost its beginning, never its end.
    """

    def __init__(self, capacity: int, frames: FrameStore | None = None) -> None:
        super().__init__(capacity, frames)
        self._episodes = WholeEpisodes()

    def forget_unfinished(self) -> None:
        unfinished = self._episodes.unfinished
        if unfinished is not None and FRAME in unfinished.keys():  # noqa: SIM118
            self.frames.free(unfinished[FRAME])
        self._episodes.forget()

    def add_rollout(self, rollout: Batch) -> None:
        """Take what followed the last rollout [T, N]; episodes that have no end yet are held back until they have."""
        ended = self._episodes.add(rollout)
        if len(self._episodes) > self.capacity:
            raise DataError(
                f"{len(self._episodes)} transitions of {rollout.batch_size[1]} unfinished episodes, the replay buffer "
                f"holds {self.capacity}: raise replay_size, or end episodes with env.train.max_episode_steps"
            )
        if ended is not None:
            self.add(ended)

    def add(self, batch: Batch) -> None:
        """Append transitions [n] of whole episodes, one after the other."""
        if batch.batch_dims == 1:
            ends = _ends(batch)
            if len(batch) and not ends[-1]:
                raise DataError("the last row does not end its episode; parts of episodes are taken by add_rollout")
            batch = batch.copy().update({_PLACE: _places(ends)})
        self._append(batch)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        return super().sample(batch_size, generator).exclude(_PLACE)

    def sample_with(
        self, key: tuple[str, ...], batch_size: int, strategy: Strategy, generator: torch.Generator
    ) -> tuple[Batch, Tensor]:
        """Transitions [batch_size], and the column `key` of another row of each one's episode.

        That row is the last of the episode (`final`), drawn from this one and later ones (`future`), or from all that
        the ring still has of it (`episode`).
        """
        if strategy not in STRATEGIES:
            raise DataError(unknown_name("strategy", strategy, STRATEGIES))
        rows = self._filled
        column = rows.get(key, None)
        if column is None:
            raise DataError(f"no '{'.'.join(key)}' in the replay buffer; it holds {', '.join(columns_of(rows))}")
        drawn = torch.randint(self._size, (batch_size,), generator=generator)
        batch = rows[drawn]
        first, last = torch.zeros_like(drawn), batch[_PLACE, "after"]
        if strategy == "final":
            first = last
        elif strategy == "episode":
            newer = (self._next - 1 - drawn) % self.capacity
            first = -torch.minimum(batch[_PLACE, "before"], self._size - 1 - newer)
        # In double precision: rounded up, the product would be one too many.
        share = torch.rand(batch_size, dtype=torch.float64, generator=generator)
        offset = first + (share * (last - first + 1)).long()
        return batch.exclude(_PLACE), column[(drawn + offset) % self.capacity]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Unfinished episodes are not saved, as the environments of a resumed run start afresh."""
        if state["size"] and _PLACE not in state["rows"]:
            raise DataError("the saved replay buffer has no episodes: it was filled for another reward model")
        super().load_state_dict(state)
        self.forget_unfinished()


def _ends(batch: Batch) -> Tensor:
    ends: Tensor = batch["terminated"] | batch["truncated"]
    return ends


def _places(ends: Tensor) -> Batch:
    """How many rows of its episode come before and after each row [n], the last of which is an end."""
    row = torch.arange(len(ends))
    stops = ends.nonzero().squeeze(-1)
    episode = ends.cumsum(0) - ends.long()
    stop = stops[episode]
    start = torch.cat([stops.new_zeros(1), stops[:-1] + 1])[episode]
    return TensorDict({"before": row - start, "after": stop - row}, batch_size=ends.shape)
