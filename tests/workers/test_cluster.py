"""Where workers are put, and that nothing is left of them when the driver ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray
from toy_workers import Toy

from rewardlab.config import config_from_mapping
from rewardlab.config.schema import ClusterConfig
from rewardlab.errors import ConfigError
from rewardlab.workers import Cluster
from rewardlab.workers.cluster import Node, NodeGpu, assign_gpus
from rewardlab.workers.ray_actor import RayWorker

CPU, TWO_GPUS, ONE_GPU = Node("a", 0), Node("b", 2), Node("c", 1)


def config(place: str | None = None, backend: str = "ray") -> ClusterConfig:
    places = {} if place is None else {"reward": place}
    return config_from_mapping({"cluster": {"backend": backend, "component_placement": places}}).cluster


def test_a_place_is_a_node_and_a_device() -> None:
    nodes = [CPU, TWO_GPUS]
    assert assign_gpus(config("1-1"), "reward", 2, nodes) == [NodeGpu(TWO_GPUS, 1)] * 2
    assert assign_gpus(config("0-1"), "reward", 1, nodes) == [NodeGpu(CPU, None)]  # a machine without GPUs has its CPU


def test_without_a_place_workers_are_spread_over_the_gpus_or_else_over_the_nodes() -> None:
    nodes = [CPU, TWO_GPUS, ONE_GPU]
    spread = assign_gpus(config(), "reward", 4, nodes)
    assert spread == [NodeGpu(TWO_GPUS, 0), NodeGpu(TWO_GPUS, 1), NodeGpu(ONE_GPU, 0), NodeGpu(TWO_GPUS, 0)]
    assert assign_gpus(config(), "env", 4, nodes) == [NodeGpu(node, None) for node in (*nodes, CPU)]
    assert assign_gpus(config(), "reward", 2, [CPU]) == [NodeGpu(CPU, None)] * 2


def test_a_place_that_is_not_there_is_answered_with_how_many_there_are(on_ray: Cluster) -> None:
    with pytest.raises(ConfigError, match=r"placement.reward: found 1-2, but node 1 has 2 GPUs, numbered from 0"):
        assign_gpus(config("1-2"), "reward", 1, [CPU, TWO_GPUS])
    for backend, owner in (("ray", "the Ray cluster"), ("local", "cluster.backend local")):
        with (
            Cluster(config("1-0", backend)) as cluster,
            pytest.raises(ConfigError, match=f"placement.reward: found 1-0, but {owner} has 1 node, numbered from 0"),
        ):
            cluster.launch("reward", lambda placement: Toy(), name="Toys")


def test_a_worker_runs_on_its_node_and_sees_its_gpu_alone(on_ray: Cluster) -> None:
    with Cluster(config("0-1")) as cluster:
        placed = cluster.launch("reward", lambda placement: Toy(), name="Toys")
        assert placed[0].submit("node").result() == ray.get_runtime_context().get_node_id()
    environment = {"CUDA_VISIBLE_DEVICES": "1", "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
    worker = RayWorker("Toys[0]", Toy, node_id=None, environment=environment)
    worker.start().result()
    assert worker.submit("variable", "CUDA_VISIBLE_DEVICES").result() == "1"
    worker.stop()


def test_the_number_of_workers_is_in_the_config() -> None:
    cfg = config_from_mapping({"cluster": {"workers": {"env": 3}}})
    with Cluster(cfg.cluster) as cluster:
        assert len(cluster.launch("env", lambda placement: Toy(placement.index), name="Toys")) == 3
        assert len(cluster.launch("actor", lambda placement: Toy(placement.index), name="Toys")) == 1
    with pytest.raises(ConfigError, match=r"Did you mean 'cluster.workers.env'"):
        config_from_mapping({"cluster": {"workers": {"envs": 3}}})


def test_ray_that_is_not_installed_is_answered_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(ConfigError, match=r"cluster.backend: .* pip install 'rewardlab\[ray\]'"),
        Cluster(ClusterConfig(backend="ray")),
    ):
        pass


@pytest.mark.parametrize(("address", "reason"), [("127.0.0.1:1", "Connection refused"), ("auto", "no token")])
def test_an_address_without_a_cluster_is_told_by_its_variable(
    address: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise ConnectionError("no token")

    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refused)
    with (
        pytest.raises(ConfigError, match=rf"RAY_ADDRESS: found {address}, .*{reason}.* Check that `ray start`"),
        Cluster(ClusterConfig(backend="ray")),
    ):
        pass


DRIVER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # the children of a shell's background job ignore Ctrl-C
from rewardlab.config.schema import ClusterConfig
from rewardlab.workers import Cluster
from toy_workers import Toy

with Cluster(ClusterConfig(backend="ray")) as cluster:
    group = cluster.launch("env", lambda placement: Toy(placement.index), name="Toys")
    print(group[0].submit("process").result(), flush=True)
    group[0].submit("sleep", float(sys.argv[1])).result()
"""


def start_driver(directory: Path, seconds: float, **environment: str) -> tuple["subprocess.Popen[str]", int]:
    """A program with one worker on Ray, and the process of that worker."""
    script = directory / "driver.py"
    script.write_text(DRIVER)
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    driver = subprocess.Popen(
        [sys.executable, str(script), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | paths | environment,
    )
    assert driver.stdout is not None
    return driver, int(driver.stdout.readline())


def wait_until_gone(process: int) -> None:
    for _ in range(100):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail(f"process {process} is still there")


def test_ctrl_c_in_the_driver_ends_its_workers(tmp_path: Path) -> None:
    driver, worker = start_driver(tmp_path, 600)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(60) != 0
    wait_until_gone(worker)


def test_a_cluster_that_was_there_is_used_and_left_running(ray_session: None, tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    driver, worker = start_driver(tmp_path, 0, RAY_ADDRESS=address)
    assert driver.wait(60) == 0
    wait_until_gone(worker)
    with Cluster(ClusterConfig(backend="ray")):
        assert ray.is_initialized()
    assert ray.is_initialized()
