"""Which tests share a process, one Ray cluster for all tests, and toy episodes that are learned in seconds."""

import base64
import importlib.util
import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from rewardlab.config.schema import ClusterConfig
from rewardlab.cores import available_cores
from rewardlab.data import Episode, EpisodeWriter
from rewardlab.workers import Cluster

ToyWriter = Callable[..., Path]
ONE_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)

# `make test` gives whole files to pytest's processes: what a module fixture trains is trained once. All files on Ray go
# to one process: they share a cluster, and two at once would slow each other down.
ON_RAY = ("tests/workers/", "tests/pipelines/test_on_ray.py")
# Files that take long begin first, so that the processes end together.
LONGEST_FIRST = (*ON_RAY, "tests/test_readme.py", "tests/pipelines/", "tests/training/")

# Simulators that some tests need, by the target of the Makefile that installs them.
SIMULATORS = {"metaworld": "metaworld", "maniskill": "mani_skill"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    starts = {item: [item.nodeid.startswith(start) for start in LONGEST_FIRST] for item in items}
    items.sort(key=lambda item: (*starts[item], True).index(True))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Number of processes for `-n auto`: one per core, and one for the tests on Ray, which mostly wait."""
    return available_cores() + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class FilesAndRay(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "on Ray" if nodeid.startswith(ON_RAY) else super()._split_scope(nodeid)

    return FilesAndRay(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what is missing: modules that are skipped for a simulator are in no count of several processes."""
    if missing := [f"make {target}" for target, name in SIMULATORS.items() if importlib.util.find_spec(name) is None]:
        terminalreporter.write_line(f"simulators not installed, their tests were skipped: {', '.join(missing)}")
    skipped = terminalreporter.stats.get("skipped", [])
    if count := sum("make browser" in str(report.longrepr) for report in skipped):
        words = f"NO BROWSER: {count} tests of web pages were skipped; `make browser` installs a Chromium"
        terminalreporter.write_line(words, red=True, bold=True)


@pytest.fixture
def without_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves empty pictures: drawing them takes half the time of a small training run."""
    monkeypatch.setattr(Figure, "savefig", lambda self, file, **options: file.write(ONE_PIXEL))


@pytest.fixture(scope="session")
def fork_server() -> ForkServerContext:
    """Starts processes that have torch and rewardlab imported: the import takes as long as what most of them do."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "rewardlab.cli", "rewardlab.pipelines.train_reward"])
    return context


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """One Ray cluster for all tests: starting it takes as long as they do."""
    with Cluster(ClusterConfig(backend="ray")):
        yield


@pytest.fixture
def on_ray(ray_session: None) -> Iterator[Cluster]:
    """A cluster of its own groups inside the session's Ray, which it does not stop."""
    with Cluster(ClusterConfig(backend="ray")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def write_toy_episodes() -> ToyWriter:
    """Writes `count` episodes to a directory; every other one shows success, in its last third."""

    def write(
        directory: Path,
        format: str = "safetensors",
        *,
        count: int = 8,
        length: int = 9,
        size: int = 32,
        cameras: tuple[str, ...] = ("base_camera",),
    ) -> Path:
        rng = np.random.default_rng(count)
        writer = EpisodeWriter(directory, format, durable=False)
        for number in range(count):
            labels = (np.arange(length) >= length - length // 3) & (number % 2 == 0)
            columns = {"success": labels}
            for camera in cameras:
                frames = rng.integers(0, 60, (length, size, size, 3), dtype=np.uint8)
                for frame, label in zip(frames, labels, strict=True):
                    row, column = rng.integers(0, size - size // 3, 2)
                    frame[row : row + size // 3, column : column + size // 3, 0 if label else 2] = 230
                columns[f"observation.images.{camera}"] = frames
            writer.write(Episode.from_columns(columns, task="toy"))
        return directory

    return write
