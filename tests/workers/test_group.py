"""Groups of workers: the same calls in process, on threads and on Ray; what happens when one fails or dies."""

import gc
import os
import signal
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from toy_workers import Toy

from rewardlab.config.schema import ClusterConfig
from rewardlab.errors import ConfigError, RewardlabError
from rewardlab.workers import Cluster, Group, WorkerDied, WorkerPlacement


def launch(cluster: Cluster, count: int = 2, **options: object) -> Group:
    def make(placement: WorkerPlacement) -> Toy:
        return Toy(placement.index, placement.device)

    group = cluster.launch("env", make, name="Toys", count=count, **options)  # type: ignore[arg-type]
    group.setup("init_worker", "hello")
    return group


@pytest.fixture(scope="module")
def ray_group(ray_session: None) -> Iterator[Group]:
    with Cluster(ClusterConfig(backend="ray")) as cluster:
        yield launch(cluster)


@pytest.fixture(params=["local", "threads", "ray"])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    with ExitStack() as stack:
        if request.param == "ray":
            yield request.getfixturevalue("ray_group")
        else:
            cluster = stack.enter_context(Cluster(ClusterConfig()))
            yield launch(cluster, background=request.param == "threads")


def test_every_worker_is_called_and_answers_in_order(group: Group) -> None:
    futures = group.call("greet", whom="driver")
    assert futures.result(60) == ["hello driver, I am 0", "hello driver, I am 1"]
    assert futures.done()
    assert group[1].submit("greet", "you").result() == "hello you, I am 1"


def test_a_future_as_an_argument_stands_for_its_result(group: Group) -> None:
    first = group.call("numbers", 3)
    total = group[1].submit("add", *first)
    assert group[0].submit("add", total, other=first[1]).result() == [200, 203, 206]


def test_errors_of_ours_arrive_as_they_were_raised(group: Group) -> None:
    with pytest.raises(ConfigError) as caught:
        group.call("misconfigured").result()
    assert type(caught.value) is ConfigError
    assert str(caught.value) == "some.key: found 3, expected 4"
    failed = group[0].submit("misconfigured")
    with pytest.raises(ConfigError) as passed_on:
        group[1].submit("greet", failed).result()
    assert str(passed_on.value) == "some.key: found 3, expected 4"
    with pytest.raises(KeyError, match="bug"):
        group[0].submit("buggy").result()


def test_an_error_in_the_constructor_is_an_error_of_launch(on_ray: Cluster) -> None:
    def make(placement: object) -> Toy:
        raise ConfigError("key: wrong")

    for cluster in (Cluster(ClusterConfig()), on_ray):
        with pytest.raises(ConfigError, match=r"^key: wrong$"):
            cluster.launch("env", make, name="Toys")


def test_in_process_calls_run_at_once_and_in_the_background_beside_the_caller() -> None:
    with Cluster(ClusterConfig()) as cluster:
        now, beside = launch(cluster), launch(cluster, background=True)
        assert now.call("thread").result() == [threading.get_ident()] * 2
        assert len({threading.get_ident(), *beside.call("thread").result()}) == 3
        event = threading.Event()
        waiting = beside[0].submit("wait_for", event)
        assert not waiting.done()
        with pytest.raises(TimeoutError):
            waiting.result(0.01)
        event.set()
        assert waiting.result() is True


def test_ray_workers_are_processes_with_one_thread_in_the_directory_of_the_driver(ray_group: Group) -> None:
    processes = ray_group.call("process").result()
    assert len({os.getpid(), *processes}) == 3
    assert ray_group[0].submit("torch_threads").result() == 1
    assert ray_group.call("directory").result() == [str(Path.cwd())] * 2
    sleeping = ray_group[0].submit("sleep", 1.0)
    assert not sleeping.done()
    with pytest.raises(TimeoutError):
        sleeping.result(0.01)
    assert sleeping.result() == "awake"


def test_two_cores_are_enough_for_six_workers_and_threads_can_be_given(ray_group: Group, on_ray: Cluster) -> None:
    more = launch(on_ray, count=4, threads=2)
    assert more.call("variable", "OMP_NUM_THREADS").result(120) == ["2"] * 4
    assert ray_group.call("variable", "OMP_NUM_THREADS").result(120) == ["1"] * 2


def test_the_death_of_a_worker_is_told_by_name_and_mended_by_restart(ray_group: Group) -> None:
    other, process = ray_group.call("process").result()
    waiting = ray_group[1].submit("sleep", 60.0)
    os.kill(process, signal.SIGKILL)
    with pytest.raises(WorkerDied, match=r"Toys\[1\] died during sleep \(process \d+: it was killed or"):
        waiting.result(60)
    with pytest.raises(WorkerDied, match=r"Toys\[1\] died .* before it sent Toys\[0\] an argument of greet"):
        ray_group[0].submit("greet", ray_group[1].submit("greet", "a")).result()
    ray_group[1].restart()
    assert ray_group.call("greet", "again").result() == ["hello again, I am 0", "hello again, I am 1"]
    assert ray_group[0].submit("process").result() == other


def test_calls_that_may_be_repeated_survive_a_death(ray_group: Group) -> None:
    os.kill(ray_group[1].submit("process").result(), signal.SIGKILL)
    numbers = ray_group[1].submit("numbers", 2, retry=True)
    total = ray_group[0].submit("add", numbers, [1, 1], retry=True)  # its argument dies with a worker and comes back
    other = ray_group[1].submit("greet", "you", retry=True)
    with pytest.warns(RuntimeWarning, match=r"Toys\[1\] died during numbers .* restarted and called again"):
        assert total.result() == [101, 102]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert other.result() == "hello you, I am 1"  # on the restarted worker, set up as the first was


def test_a_call_that_kills_its_worker_every_time_is_given_up(on_ray: Cluster) -> None:
    group = launch(on_ray, count=1)
    with (
        pytest.warns(RuntimeWarning, match="restarted and called again") as repeated,
        pytest.raises(WorkerDied, match=r"Toys\[0\] died during die"),
    ):
        group[0].submit("die", retry=True).result()
    assert len(repeated) == 2


def test_state_that_could_not_be_taken_is_not_given_to_a_restarted_worker(group: Group) -> None:
    failed = group[0].submit("misconfigured")
    with pytest.raises(ConfigError):
        group.setup("init_worker", failed)
    group[1].restart()
    assert group[1].submit("greet", "you").result() == "hello you, I am 1"


def test_a_long_chain_of_results_does_not_keep_its_beginning(ray_group: Group) -> None:
    first = ray_group[0].submit("numbers", 2)
    kept = weakref.ref(first)
    second = ray_group[1].submit("add", first, first)
    third = ray_group[0].submit("add", second, second, retry=True)
    assert third.result() == [0, 4]
    del first, second
    gc.collect()
    assert kept() is None


def test_the_successor_of_a_worker_has_its_changes(ray_group: Group) -> None:
    other, worker = ray_group
    assert worker.change("grow", 2) == 2
    os.kill(worker.submit("process").result(), signal.SIGKILL)
    with pytest.warns(RuntimeWarning, match=r"Toys\[1\] died during grow .* restarted and called again"):
        assert worker.change("grow", 3) == 5  # what was lost is made again from where it was, and counted once
    os.kill(worker.submit("process").result(), signal.SIGKILL)
    with pytest.warns(RuntimeWarning, match="died during size"):
        assert worker.submit("size", retry=True).result() == 5
    other.change("fill", 2000)  # row by row, pickle would write a gigabyte
    os.kill(other.submit("process").result(), signal.SIGKILL)
    with pytest.warns(RuntimeWarning, match="died during write"):
        assert other.change("write") == 1
    with pytest.raises(RewardlabError, match=r"Toys\[1\] cannot be copied .*pickle.*lock"):
        worker.change("lock")
    with pytest.warns(RuntimeWarning, match="died"), pytest.raises(WorkerDied, match="died during die"):
        worker.change("die")  # again and again
