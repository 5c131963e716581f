"""Finds recorded episodes that a classifier must not learn from, because a camera or the robot stood still."""

import numpy as np
import numpy.typing as npt

from rewardlab.data.episodes import Array, Episode
from rewardlab.keys import IMAGES, STATE

FROZEN_FRAMES = 10  # the same picture so many times in a row, while something else moved; noise makes pictures differ
BLOCKS = 8  # a picture is compared by the means of 8 x 8 blocks, in which noise cancels out
STILL = 1.5  # of 255: what the mean of a block may change where nothing moves, beside noise
DEVIATIONS = 6  # of the noise of a block
MOVED = 0.005  # of a number of the state: metres, or what it has


def find_standstill(episode: Episode) -> str:
    """Return why an episode is static, in words, or "" if it is not."""
    cameras = {name.removeprefix(IMAGES): array for name, array in episode.columns.items() if name.startswith(IMAGES)}
    if not cameras:
        return ""
    if len(episode) > FROZEN_FRAMES and all(_is_still(frames) for frames in cameras.values()):
        return "nothing moves in any picture: did the robot stand still?"
    same = {camera: _same_as_before(frames) for camera, frames in cameras.items()}
    for camera, repeats in same.items():
        for start, end in _runs(repeats):
            others_moved = any(not same[other][start:end].all() for other in same if other != camera)
            if end - start >= FROZEN_FRAMES and (others_moved or _moved(episode, start, end)):
                return (
                    f"the picture of '{camera}' is the very same in frames {start - 1} to {end - 1}, while the robot "
                    "moved: the camera was frozen"
                )
    return ""


def _is_still(frames: Array) -> bool:
    means = _block_means(frames)
    changes = np.abs(np.diff(frames.astype(np.int16), axis=0))
    noise = float(np.quantile(changes, 0.75))  # of a pixel: most of them show nothing that moves
    pixels = frames[0].size / means[0].size
    return bool(np.abs(means - means[0]).max() < STILL + DEVIATIONS * noise / pixels**0.5)


def _block_means(frames: Array) -> npt.NDArray[np.float32]:
    """Return pictures [T, H, W, 3] as the means of their blocks, over colours too."""
    rows, columns = (np.linspace(0, size, min(BLOCKS, size) + 1).astype(int)[:-1] for size in frames.shape[1:3])
    sums = np.add.reduceat(np.add.reduceat(frames.mean(3, dtype=np.float32), rows, axis=1), columns, axis=2)
    counts = np.diff([*rows, frames.shape[1]])[:, None] * np.diff([*columns, frames.shape[2]])
    return np.asarray(sums / counts, np.float32)


def _same_as_before(frames: Array) -> npt.NDArray[np.bool_]:
    return np.array([False, *((a == b).all() for a, b in zip(frames[1:], frames[:-1], strict=True))])


def _runs(flags: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return where flags are set in a row: first, and one behind the last."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _moved(episode: Episode, start: int, end: int) -> bool:
    if STATE not in episode.columns:
        return False
    states = episode.columns[STATE][start - 1 : end]
    return bool(np.ptp(states, axis=0).max() > MOVED)
