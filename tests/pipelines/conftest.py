"""What tests of several pipelines share."""

from collections.abc import Iterator

import pytest

from rewardlab.config.schema import ClusterConfig
from rewardlab.workers.cluster import Cluster


@pytest.fixture(scope="package")
def running_ray() -> Iterator[None]:
    """One cluster for all tests here: starting it takes as long as they do."""
    with Cluster(ClusterConfig(backend="ray")):
        yield
