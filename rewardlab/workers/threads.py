"""The number of threads that torch computes with."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rewardlab.cores import available_cores


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set the number of torch threads inside a `with` block.

    One thread is best for small networks: on a busy machine, learning from states was up to five times slower with
    several threads, which wait for each other. Convolutions over hundreds of images are faster with several.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def default_torch_threads() -> int:
    """Return $OMP_NUM_THREADS, or the number of available CPU cores if it is not set."""
    configured = os.environ.get("OMP_NUM_THREADS", "")
    return int(configured) if configured.isdecimal() and int(configured) else available_cores()
