"""The frames that a success classifier learns from while a policy trains."""

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
    """Collected frames in memory, and frames of recorded episodes, which are read from disk when they are drawn.

    Collected frames keep the dtype they came in. Those added with `keep`, and recorded ones, survive `clear`.
    """

    def __init__(self, seed: int = 0) -> None:
        self._parts: list[tuple[Pictures, Tensor, bool]] = []
        self._recorded: StoredFrames | None = None
        self._generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return sum(map(len, self._labels()))

    def add(self, images: Mapping[str, ImageArray], labels: Tensor, *, keep: bool = False) -> None:
        """Copy frames in: the caller may reuse its buffers."""
        frames = {
            key: torch.as_tensor(array).detach().to("cpu", copy=True).reshape(-1, *array.shape[-3:])
            for key, array in images.items()
        }
        for key, array in frames.items():
            if len(array) != len(labels):
                raise DataError(f"{len(array)} images of camera '{key}' with {len(labels)} labels")
        self._parts.append((frames, labels, keep))

    def replay(self, table: FrameTable, cameras: Sequence[str]) -> None:
        """Draw from the frames of recorded episodes too."""
        self._recorded = StoredFrames(table, cameras)

    def clear(self) -> None:
        self._parts = [part for part in self._parts if part[2]]

    @property
    def successes(self) -> int:
        return sum(int(labels.sum()) for labels in self._labels())

    @property
    def has_both_classes(self) -> bool:
        return 0 < self.successes < len(self)

    def check_trainable(self) -> None:
        if not self.has_both_classes:
            failures = len(self) - self.successes
            raise DataError(
                f"cannot train on {self.successes} frames of success and {failures} of failure: both are needed. "
                "Give them to collect_data or load_expert_data"
            )

    def balanced_batch(self, size: int) -> tuple[Pictures, Tensor]:
        """Random frames, half of them successes; of each class half are collected and half recorded frames, where there
        are both."""
        collected, recorded = self._labels()
        rows: tuple[list[Tensor], list[Tensor]] = ([], [])
        for success, count in ((True, (size + 1) // 2), (False, size // 2)):
            here, there = ((labels == success).nonzero().squeeze(-1) for labels in (collected, recorded))
            from_disk = 0 if not len(there) else count if not len(here) else count // 2
            rows[0].append(self._draw(here, count - from_disk))
            rows[1].append(self._draw(there, from_disk))
        in_memory, on_disk = (torch.cat(parts) for parts in rows)
        labels = torch.cat([collected[in_memory], recorded[on_disk]])
        try:
            return _joined(self._from_memory(in_memory), self._from_disk(on_disk)), labels
        except RuntimeError as error:
            raise DataError(
                f"the images to train on differ in size, layout or dtype ({error}); frames of a run are drawn at "
                "env.train.image_size, recorded ones are as they were collected"
            ) from error

    def state_dict(self) -> dict[str, Any]:
        """Collected frames, and where the random generator is."""
        parts = [{"images": frames, "labels": labels, "keep": keep} for frames, labels, keep in self._parts]
        return {"parts": parts, "generator": self._generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._parts = [(part["images"], part["labels"], part["keep"]) for part in state["parts"]]
        self._generator.set_state(state["generator"])

    def _labels(self) -> tuple[Tensor, Tensor]:
        """Of the collected frames, and of the recorded ones."""
        none = torch.zeros(0, dtype=torch.bool)
        recorded = none if self._recorded is None else torch.from_numpy(self._recorded.table.label)
        return torch.cat([none, *(labels for _, labels, _ in self._parts)]), recorded

    def _draw(self, rows: Tensor, count: int) -> Tensor:
        if not count:
            return rows[:0]
        return rows[torch.randint(len(rows), (count,), generator=self._generator)]

    def _from_memory(self, rows: Tensor) -> Pictures:
        if not len(rows):
            return {}
        return {key: torch.stack([self._frame(key, int(row)) for row in rows]) for key in self._parts[0][0]}

    def _from_disk(self, rows: Tensor) -> Pictures:
        return {} if self._recorded is None or not len(rows) else self._recorded[rows.numpy()].images

    def _frame(self, camera: str, row: int) -> Tensor:
        for frames, labels, _ in self._parts:
            if row < len(labels):
                return frames[camera][row]
            row -= len(labels)
        raise IndexError(row)


def _joined(collected: Pictures, recorded: Pictures) -> Pictures:
    if not collected or not recorded:
        return collected or recorded
    return {camera: torch.cat([collected[camera], recorded[camera]]) for camera in collected}
