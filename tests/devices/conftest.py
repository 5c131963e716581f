"""A machine with two toy devices, and the helpers of the tests of pipelines."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "pipelines")]

import toy_device  # noqa: E402

toy_device.register()


@pytest.fixture
def toy() -> Iterator[None]:
    with toy_device.toy_devices():
        yield
