from collections.abc import Callable

import numpy as np
import pytest

from rewardlab.data import Episode


@pytest.fixture
def make_episode() -> Callable[..., Episode]:
    """Episodes with every column filled with something that would be missed if it were lost or mixed up."""

    def make(length: int = 6, size: int = 8, success: bool = True, seed: int = 0, **options: object) -> Episode:
        rng = np.random.default_rng(seed)
        labels = np.zeros(length, dtype=bool)
        labels[length // 2 : -1] = success  # reached, then lost again in the last frame
        terminated = np.zeros(length, dtype=bool)
        truncated = np.arange(length) == length - 1
        columns = {
            "observation.state": rng.normal(size=(length, 5)).astype(np.float32),
            "observation.images.base_camera": rng.integers(0, 256, (length, size, size, 3), dtype=np.uint8),
            "observation.images.wrist_camera": rng.integers(0, 256, (length, size, size + 2, 3), dtype=np.uint8),
            "action": rng.normal(size=(length, 4)).astype(np.float32),
            "reward": rng.normal(size=length).astype(np.float32),
            "env_reward": rng.normal(size=length).astype(np.float32),
            "terminated": terminated,
            "truncated": truncated,
            "success": labels,
            "grasp": np.arange(length) % 2 == 1,
        }
        return Episode.from_columns(columns, **{"task": "PickCube", "seed": 7, "policy": "expert", **options})

    return make
