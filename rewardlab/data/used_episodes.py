"""Records the episodes that a model was trained and validated on, and finds them again to continue training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rewardlab.config.schema import DataConfig
from rewardlab.data.frames import FrameTable, limit_failures, sample_per_episode, split_by_episode, tabulate
from rewardlab.data.reader import StoredEpisode, episode_paths
from rewardlab.errors import DataError

Identities = dict[str, str]  # path of an episode -> identity of its contents


@dataclass(frozen=True)
class UsedEpisodes:
    """The episodes of the training and validation split, and how training frames were sampled from them."""

    train: Identities
    validation: Identities
    num_samples_per_episode: int = 0
    fail_success_ratio: float | None = None
    seed: int = 0

    @classmethod
    def record(cls, train: FrameTable, validation: FrameTable, data: DataConfig, seed: int) -> "UsedEpisodes":
        """Return the record of two frame tables that `split_frames` made."""
        held_out = set(validation.episode.tolist())
        sides: tuple[Identities, Identities] = ({}, {})  # all episodes of a side, also those that no frame was drawn of
        for number, episode in enumerate(train.episodes):
            sides[number in held_out][str(episode.path)] = episode.identity
        return cls(*sides, data.num_samples_per_episode, data.fail_success_ratio, seed)

    def find(self, directories: Sequence[str] = ()) -> tuple[FrameTable, FrameTable]:
        """Return the training frames and the held-out frames; a DataError names episodes that are missing or changed.

        Episodes are looked for in `directories`, if any are given, and at their recorded paths.
        """
        moved = {StoredEpisode(path).identity: path for folder in directories for path in episode_paths(Path(folder))}
        train, validation = (_find(part, moved) for part in (self.train, self.validation))
        sampled = sample_per_episode(tabulate(train), self.num_samples_per_episode, self.seed)
        return limit_failures(sampled, self.fail_success_ratio, self.seed), tabulate(validation)


def _find(recorded: Identities, moved: Mapping[str, Path]) -> list[StoredEpisode]:
    found, lost = [], []
    for name, identity in recorded.items():
        path = moved.get(identity, Path(name))
        if path.is_file() and StoredEpisode(path).identity == identity:
            found.append(StoredEpisode(path))
        else:
            lost.append(name)
    if lost:
        raise DataError(
            f"{len(lost)} of the {len(recorded)} episodes that the reward model was trained or validated on are "
            f"missing or have changed, such as {lost[0]}. If they were moved, set data.data_path to their directory"
        )
    return found


def split_frames(episodes: Sequence[StoredEpisode], data: DataConfig, seed: int) -> tuple[FrameTable, FrameTable]:
    """Split episodes and return the training frames and the held-out frames."""
    train, validation = split_by_episode(tabulate(episodes), data.val_fraction, seed)
    train = sample_per_episode(train, data.num_samples_per_episode, seed)
    return limit_failures(train, data.fail_success_ratio, seed), validation
