"""A replay buffer of whole episodes, from which a row can be sampled together with a later row of its episode."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from tensordict import TensorDict
from torch import Tensor

from rewardlab.data.frame_store import FrameStore
from rewardlab.data.packed_batch import PackedBatch, packed
from rewardlab.data.replay import ReplayBuffer, column_names
from rewardlab.errors import DataError
from rewardlab.registry import unknown_name
from rewardlab.types import Batch

Strategy = Literal["final", "future", "episode"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)

_POSITION = "place_in_episode"  # the column with the number of rows of the same episode "before" and "after" a row


class WholeEpisodes:
    """Joins consecutive rollouts: returns the episodes that have ended, and stores unfinished ones until they end.

    An unfinished episode of `longest` steps or more is returned too, as if it were truncated there.
    """

    def __init__(self, longest: int | None = None) -> None:
        self.longest = longest
        self.forget()

    def __len__(self) -> int:
        """Return the number of stored steps of unfinished episodes."""
        return len(self._env)

    def forget(self) -> None:
        """Drop unfinished episodes; must be called when environments are reset, because new episodes begin then."""
        self.unfinished: Batch | None = None  # flat, environment by environment
        self._env = torch.zeros(0, dtype=torch.int64)  # the environment of each row
        self._num_envs: int | None = None

    def add(self, rollout: Batch) -> Batch | None:
        """Add the rollout [T, N] after the last one; return the rows [n] of the episodes that have ended, in order."""
        if rollout.batch_dims != 2:
            raise DataError(f"the rollout has batch size {list(rollout.batch_size)}; expected [T, N]")
        steps, envs = rollout.batch_size
        if self._num_envs not in (None, envs):
            raise DataError(
                f"the rollout is of {envs} environments, unfinished episodes of {self._num_envs}: call forget() when "
                "environments are reset"
            )
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
        if self.longest is not None:
            ended |= self._cut(rows, env, ended)
        self.unfinished, self._env = rows[~ended], env[~ended]
        return rows[ended] if ended.any() else None

    def _cut(self, rows: Batch, env: Tensor, ended: Tensor) -> Tensor:
        """Mark the last step of unfinished episodes that are too long as truncated; return which rows are theirs."""
        too_long = env[~ended].bincount(minlength=int(self._num_envs or 0)) >= (self.longest or 0)
        last = env.bincount().cumsum(0) - 1  # every environment has rows, one environment after the other
        rows["truncated"][last[too_long]] = True
        return too_long[env]


class EpisodeReplay(ReplayBuffer):
    """A replay buffer of whole episodes, each contiguous and in time order, which are added when they have ended.

    The oldest rows are overwritten first, so that the oldest episode may have lost its beginning, never its end.
    """

    def __init__(self, capacity: int, frames: FrameStore | None = None) -> None:
        super().__init__(capacity, frames)
        self._episodes = WholeEpisodes()

    def forget_unfinished(self) -> None:
        if self._episodes.unfinished is not None:
            self.frames.release(self._episodes.unfinished)
        self._episodes.forget()

    def relabel(self, function: Callable[[Batch], Batch], chunk: int = 4096, *, images: bool = True) -> None:
        super().relabel(function, chunk, images=images)
        rows = self._episodes.unfinished
        if rows is not None and len(rows):
            rows.update(function(self._with_images(rows) if images else rows))

    def add_rollout(self, rollout: Batch | PackedBatch) -> None:
        """Add the rollout [T, N] after the last one; unfinished episodes are stored apart until they end."""
        rollout = packed(rollout)
        ended = self._episodes.add(self.frames.add(rollout))
        if len(self._episodes) > self.capacity:
            envs = rollout.rows.batch_size[1]
            raise DataError(
                f"{len(self._episodes)} transitions of {envs} unfinished episodes, but the replay buffer holds "
                f"{self.capacity}: raise replay_size, or end episodes with env.train.max_episode_steps"
            )
        if ended is not None:
            ended = ended.update({_POSITION: _episode_positions(_ends(ended))})
            self._check_columns(ended)
            self.frames.release(ended[: -self.capacity])
            self._write(ended[-self.capacity :], self._make_room(len(ended)))

    def add(self, batch: Batch | PackedBatch) -> None:
        """Append transitions [n] of whole episodes, one episode after the other."""
        batch = packed(batch)
        if batch.rows.batch_dims == 1:
            ends = _ends(batch.rows)
            if len(ends) and not ends[-1]:
                raise DataError("the last row does not end its episode; add parts of episodes with add_rollout")
            batch = PackedBatch(batch.rows.copy().update({_POSITION: _episode_positions(ends)}), batch.frames)
        super().add(batch)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        return super().sample(batch_size, generator).exclude(_POSITION)

    def sample_with(
        self, key: tuple[str, ...], batch_size: int, strategy: Strategy, generator: torch.Generator
    ) -> tuple[Batch, Tensor]:
        """Return transitions [batch_size], and the column `key` of another row of the episode of each transition.

        The other row is the last of the episode (`final`), a random one from this row on (`future`), or a random one
        of all rows of the episode that are still stored (`episode`).
        """
        if strategy not in STRATEGIES:
            raise DataError(unknown_name("strategy", strategy, STRATEGIES))
        rows = self._filled
        if rows.get(key, None) is None:
            raise DataError(f"no '{'.'.join(key)}' in the replay buffer; it holds {column_names(rows)}")
        sampled = torch.randint(self._size, (batch_size,), generator=generator)
        batch = rows[sampled]
        first, last = torch.zeros_like(sampled), batch[_POSITION, "after"]
        if strategy == "final":
            first = last
        elif strategy == "episode":
            newer = (self._next - 1 - sampled) % self.capacity
            first = -torch.minimum(batch[_POSITION, "before"], self._size - 1 - newer)
        # In double precision: the product must not be rounded up to the next whole number.
        fraction = torch.rand(batch_size, dtype=torch.float64, generator=generator)
        offset = first + (fraction * (last - first + 1)).long()
        other = rows.select(key)[(sampled + offset) % self.capacity]
        return self._with_images(batch.exclude(_POSITION)), self._with_images(other)[key]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the stored episodes; unfinished ones are not saved, because a resumed run resets its environments."""
        if state["size"] and _POSITION not in state["rows"]:
            raise DataError("the saved replay buffer has no episodes: it was filled for another reward model")
        self.forget_unfinished()
        super().load_state_dict(state)


def _ends(batch: Batch) -> Tensor:
    ends: Tensor = batch["terminated"] | batch["truncated"]
    return ends


def _episode_positions(ends: Tensor) -> Batch:
    """Return the number of rows of its episode before and after each row [n]; the last row ends an episode."""
    row = torch.arange(len(ends))
    stops = ends.nonzero().squeeze(-1)
    episode = ends.cumsum(0) - ends.long()
    stop = stops[episode]
    start = torch.cat([stops.new_zeros(1), stops[:-1] + 1])[episode]
    return TensorDict({"before": row - start, "after": stop - row}, batch_size=ends.shape)
