"""The labelled frames that a success classifier is trained on while a policy trains."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rewardlab.data.frames import FrameTable
from rewardlab.data.stored_frames import StoredFrames
from rewardlab.errors import DataError
from rewardlab.models.image_preprocessor import ImageArray

Pictures = dict[str, Tensor]


class LabelledFrames:
    """Samples from collected frames, in memory, and from frames of recorded episodes, read from disk when sampled.

    `clear` drops collected frames, except those added with `keep`.
    """

    def __init__(self, seed: int = 0) -> None:
        self._parts: list[tuple[Pictures, Tensor, bool]] = []
        self._recorded: StoredFrames | None = None
        self._generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return sum(map(len, self._labels()))

    def add(
        self, images: Mapping[str, ImageArray], labels: Tensor, unsure: Tensor | None = None, *, keep: bool = False
    ) -> None:
        """Add a copy of frames with their labels, but for those of which somebody was unsure."""
        frames = {
            key: torch.as_tensor(array).detach().to("cpu", copy=True).reshape(-1, *array.shape[-3:])
            for key, array in images.items()
        }
        for key, array in frames.items():
            if len(array) != len(labels):
                raise DataError(f"{len(array)} images of camera '{key}' with {len(labels)} labels; expected one each")
        if unsure is not None:
            frames, labels = {key: array[~unsure] for key, array in frames.items()}, labels[~unsure]
        self._parts.append((frames, labels, keep))

    def replay(self, table: FrameTable, cameras: Sequence[str]) -> None:
        """Sample from the frames of recorded episodes too."""
        self._recorded = StoredFrames(table, cameras)

    def clear(self) -> None:
        """Drop collected frames, except those added with `keep`."""
        self._parts = [part for part in self._parts if part[2]]

    @property
    def has_both_classes(self) -> bool:
        """Return whether there are both successes and failures."""
        labels = torch.cat(self._labels())
        return bool(labels.any() and not labels.all())

    def check_trainable(self) -> None:
        """Raise a DataError unless there are both successes and failures."""
        if not self.has_both_classes:
            successes = sum(int(labels.sum()) for labels in self._labels())
            raise DataError(
                f"cannot train on {successes} frames of success and {len(self) - successes} of failure: both are "
                "needed. Add them with collect_data or load_expert_data"
            )

    def balanced_batch(self, size: int) -> tuple[Pictures, Tensor]:
        """Return random frames and their labels, half of them successes.

        Half of each class are collected and half recorded frames, if there are both.
        """
        collected, recorded = self._labels()
        rows: tuple[list[Tensor], list[Tensor]] = ([], [])
        for success, count in ((True, (size + 1) // 2), (False, size // 2)):
            in_memory, on_disk = ((labels == success).nonzero().squeeze(-1) for labels in (collected, recorded))
            from_disk = 0 if not len(on_disk) else count if not len(in_memory) else count // 2
            rows[0].append(self._sample(in_memory, count - from_disk))
            rows[1].append(self._sample(on_disk, from_disk))
        in_memory, on_disk = (torch.cat(parts) for parts in rows)
        labels = torch.cat([collected[in_memory], recorded[on_disk]])
        try:
            return self._read(in_memory, on_disk), labels
        except RuntimeError as error:
            raise DataError(
                f"the images to train on differ in size, layout or dtype ({error}); recorded frames are as they were "
                "collected, and frames of a run have the size that the checkpoint says (else env.train.image_size)"
            ) from error

    def state_dict(self) -> dict[str, Any]:
        """Return the collected frames and the state of the random generator."""
        parts = [{"images": frames, "labels": labels, "keep": keep} for frames, labels, keep in self._parts]
        return {"parts": parts, "generator": self._generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._parts = [(part["images"], part["labels"], part["keep"]) for part in state["parts"]]
        self._generator.set_state(state["generator"])

    def _labels(self) -> tuple[Tensor, Tensor]:
        """Return the labels of the collected frames and those of the recorded frames."""
        none = torch.zeros(0, dtype=torch.bool)
        recorded = none if self._recorded is None else torch.from_numpy(self._recorded.table.label)
        return torch.cat([none, *(labels for _, labels, _ in self._parts)]), recorded

    def _sample(self, rows: Tensor, count: int) -> Tensor:
        if not count:
            return rows[:0]
        return rows[torch.randint(len(rows), (count,), generator=self._generator)]

    def _read(self, in_memory: Tensor, on_disk: Tensor) -> Pictures:
        recorded = self._recorded[on_disk.numpy()].images if self._recorded is not None and len(on_disk) else {}
        if not len(in_memory):
            return recorded
        cameras = self._parts[0][0]
        collected = {key: torch.stack([self._frame(key, int(row)) for row in in_memory]) for key in cameras}
        return {key: torch.cat([images, recorded[key]]) if recorded else images for key, images in collected.items()}

    def _frame(self, camera: str, row: int) -> Tensor:
        for frames, labels, _ in self._parts:
            if row < len(labels):
                return frames[camera][row]
            row -= len(labels)
        raise IndexError(row)
