"""How many frames of a long recording make an episode: so many that memory stays flat."""

from rewardlab.data.imports.picture_size import Size

MOST_FRAMES = 600
MOST_BYTES = 96 * 2**20


def frames_of_a_block(size: Size) -> int:
    """Return the largest number of pictures, as they are stored, that one episode may have."""
    return max(1, min(MOST_FRAMES, MOST_BYTES // (3 * size[0] * size[1])))
