"""What tests of several pipelines share."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for policy_runs: pytest's importlib mode adds nothing to the path

from rewardlab.config.schema import ClusterConfig
from rewardlab.workers.cluster import Cluster


@pytest.fixture(scope="package")
def running_ray() -> Iterator[None]:
    """One cluster for all tests here: starting it takes as long as they do."""
    with Cluster(ClusterConfig(backend="ray")):
        yield
