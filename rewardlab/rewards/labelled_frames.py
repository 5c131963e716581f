"""Frames collected in memory while a policy trains."""

from collections.abc import Mapping

import torch
from torch import Tensor

from rewardlab.errors import DataError
from rewardlab.models.image_preprocessor import ImageArray


class LabelledFrames:
    """Images per camera with success labels, in the dtype they came in. Frames added with `keep` survive `clear`."""

    def __init__(self, seed: int = 0) -> None:
        self._parts: list[tuple[dict[str, Tensor], Tensor, bool]] = []
        self._generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return sum(len(labels) for _, labels, _ in self._parts)

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

    def clear(self) -> None:
        self._parts = [part for part in self._parts if part[2]]

    @property
    def successes(self) -> int:
        return sum(int(labels.sum()) for _, labels, _ in self._parts)

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

    def balanced_batch(self, size: int) -> tuple[dict[str, Tensor], Tensor]:
        """Random frames, half of them successes."""
        labels = torch.cat([labels for _, labels, _ in self._parts])
        halves = [(labels, (size + 1) // 2), (~labels, size // 2)]
        rows = torch.cat([_draw(mask.nonzero().squeeze(-1), count, self._generator) for mask, count in halves])
        try:
            images = {key: torch.stack([self._frame(key, int(row)) for row in rows]) for key in self._parts[0][0]}
        except RuntimeError as error:
            raise DataError(f"collected images differ in size, layout or dtype ({error})") from error
        return images, labels[rows]

    def _frame(self, camera: str, row: int) -> Tensor:
        for frames, labels, _ in self._parts:
            if row < len(labels):
                return frames[camera][row]
            row -= len(labels)
        raise IndexError(row)


def _draw(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return rows[torch.randint(len(rows), (count,), generator=generator)]
