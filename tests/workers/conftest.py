"""One Ray cluster for all tests of workers."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for toy_workers: pytest's importlib mode adds nothing to the path

from rewardlab.config.schema import ClusterConfig
from rewardlab.workers import Cluster


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    with Cluster(ClusterConfig(backend="ray")):
        yield


@pytest.fixture
def on_ray(ray_session: None) -> Iterator[Cluster]:
    """A cluster of its own groups inside the session's Ray, which it does not stop."""
    with Cluster(ClusterConfig(backend="ray")) as cluster:
        yield cluster
