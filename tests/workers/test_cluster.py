"""Where workers are put, and that nothing is left of them when the driver ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from toy_workers import Toy

from rewardlab.config import config_from_mapping
from rewardlab.config.schema import ClusterConfig
from rewardlab.errors import ConfigError
from rewardlab.workers import Cluster
from rewardlab.workers import cluster as cluster_module
from rewardlab.workers.placement import (
    Node,
    NodeDevice,
    NodeLost,
    assign_devices,
    replacement_place,
    require_own_devices,
)

CPU, TWO_GPUS, ONE_GPU = Node("a", "cpu"), Node("b", "cuda", 2, address="b"), Node("c", "cuda", 1)


def config(place: str | None = None, backend: str = "ray", **more: Any) -> ClusterConfig:
    places = {} if place is None else {"reward": place}
    return config_from_mapping({"cluster": {"backend": backend, "component_placement": places, **more}}).cluster


def test_a_place_is_a_node_and_a_device() -> None:
    nodes = [CPU, TWO_GPUS]
    assert assign_devices(config("1-1"), "reward", 2, nodes) == [NodeDevice(TWO_GPUS, "cuda:1")] * 2
    # A machine without accelerators has its CPU.
    assert assign_devices(config("0-1"), "reward", 1, nodes) == [NodeDevice(CPU, "cpu")]


def test_without_a_place_workers_are_spread_over_the_gpus_or_else_over_the_nodes() -> None:
    nodes = [CPU, TWO_GPUS, ONE_GPU]
    spread = assign_devices(config(), "reward", 4, nodes)
    places = [(TWO_GPUS, "cuda:0"), (ONE_GPU, "cuda:0"), (TWO_GPUS, "cuda:1"), (TWO_GPUS, "cuda:0")]
    assert spread == [NodeDevice(*place) for place in places]
    assert assign_devices(config(), "reward", 2, [CPU]) == [NodeDevice(CPU, "cpu")] * 2
    places = [(CPU, "cpu"), (TWO_GPUS, "cuda:0"), (ONE_GPU, "cuda:0"), (TWO_GPUS, "cuda:1"), (CPU, "cpu")]
    for component in ("env", "rollout"):  # a pair of workers has one node
        assert assign_devices(config(), component, 5, nodes) == [NodeDevice(*place) for place in places]


def test_the_device_of_the_cluster_counts_where_no_place_is_given() -> None:
    nodes = [CPU, TWO_GPUS, ONE_GPU]
    assert assign_devices(config(device="cuda:1"), "reward", 2, nodes) == [NodeDevice(TWO_GPUS, "cuda:1")] * 2
    assert assign_devices(config("2-0", device="cuda:1"), "reward", 1, nodes) == [NodeDevice(ONE_GPU, "cuda:0")]
    with pytest.raises(ConfigError, match=r"cluster.device: found cuda:2, but no node has more than 2 such devices"):
        assign_devices(config(device="cuda:2"), "reward", 1, nodes)
    with pytest.raises(
        ConfigError, match=r"cluster.device: found cuda, but the Ray cluster has no cuda device for the"
    ):
        assign_devices(config(device="cuda"), "reward", 1, [CPU])


def test_a_worker_of_a_lost_node_goes_to_the_same_kind_of_device_on_another() -> None:
    before = [CPU, TWO_GPUS, ONE_GPU]

    def moved(cluster: ClusterConfig, lost: Node, device: str, now: list[Node], index: int = 0) -> NodeDevice:
        place = NodeDevice(lost, device)
        return replacement_place(cluster, "reward", index, place, known=before, now=now, workers=["RewardGroup[0]"])

    assert moved(config(), TWO_GPUS, "cuda:1", [CPU, ONE_GPU], index=1) == NodeDevice(ONE_GPU, "cuda:0")
    assert moved(config(), CPU, "cpu", [TWO_GPUS, ONE_GPU], index=1) == NodeDevice(ONE_GPU, "cpu")
    arm = config("arm-0", node_groups=[{"label": "arm", "node_ranks": [1, 2]}])
    assert moved(arm, ONE_GPU, "cuda:0", [CPU, TWO_GPUS]) == NodeDevice(TWO_GPUS, "cuda:0")
    lost = (
        r"node b, on which RewardGroup\[0\] ran, has left .* no other node can run reward worker 0 \(cuda:1\)\. Start "
    )
    without_cpus = Node("d", "cpu", offers_cpus=False)
    for cluster, node, device, message in (
        (config("1-1"), TWO_GPUS, "cuda:1", rf"{lost}.* choose another node with .*placement.reward, which is 1-1"),
        (config(), TWO_GPUS, "cuda:1", rf"{lost}.* set cluster.device=cpu: no other node has a device cuda"),
        (config(device="cuda:1"), TWO_GPUS, "cuda:1", rf"{lost}.* no other node has a device cuda:1"),
        (config(), CPU, "cpu", "Start the node again, or another one: no other node offers CPUs"),
    ):
        with pytest.raises(NodeLost, match=message):
            moved(cluster, node, device, [without_cpus])


def test_workers_are_not_spread_over_nodes_without_cpus() -> None:
    head = Node("d", "cpu", offers_cpus=False)
    assert assign_devices(config(), "env", 2, [head, CPU]) == [NodeDevice(CPU, "cpu")] * 2


def test_a_node_can_have_a_name() -> None:
    groups, far = [{"label": "arm", "node_ranks": [1, 2]}], [{"label": "far", "node_ranks": [7]}]
    nodes = [CPU, TWO_GPUS, ONE_GPU]
    placed = assign_devices(config("arm-0", node_groups=groups), "reward", 3, nodes)
    assert placed == [NodeDevice(TWO_GPUS, "cuda:0"), NodeDevice(ONE_GPU, "cuda:0"), NodeDevice(TWO_GPUS, "cuda:0")]
    with pytest.raises(ConfigError, match=r"placement.reward: found leg-0, but no group of .* has the label 'leg'"):
        assign_devices(config("leg-0"), "reward", 1, nodes)
    with pytest.raises(ConfigError, match=r"found far-0, but node 7 of group 'far' is not there: .* has 3 nodes"):
        assign_devices(config("far-0", node_groups=far), "reward", 1, nodes)


def test_a_place_on_a_machine_without_accelerators_is_its_cpu_and_says_so_once(
    recwarn: pytest.WarningsRecorder,
) -> None:
    places = {"reward": "0-1", "env": "0-0"}
    with Cluster(config_from_mapping({"cluster": {"component_placement": places}}).cluster) as cluster:
        for component in ("reward", "env"):
            group = cluster.launch(component, lambda placement: Toy(device=str(placement.device)), name="Toys")
            assert group[0].submit("where").result() == "cpu"
    (said,) = recwarn
    assert "that node has no accelerator" in str(said.message)


def test_a_place_that_is_not_there_is_answered_with_how_many_there_are(on_ray: Cluster) -> None:
    with pytest.raises(ConfigError, match=r"placement.reward: found 1-2, but node 1 has 2 cuda devices, numbered from"):
        assign_devices(config("1-2"), "reward", 1, [CPU, TWO_GPUS])
    for backend, owner in (("ray", "the Ray cluster"), ("local", "cluster.backend local")):
        with (
            Cluster(config("1-0", backend)) as cluster,
            pytest.raises(ConfigError, match=f"placement.reward: found 1-0, but {owner} has 1 node, numbered from 0"),
        ):
            cluster.launch("reward", lambda placement: Toy(), name="Toys")


def test_a_worker_runs_on_its_node_and_ray_does_not_hide_gpus_from_it(on_ray: Cluster) -> None:
    with Cluster(config("0-1")) as cluster:
        placed = cluster.launch("reward", lambda placement: Toy(), name="Toys")
        assert placed[0].submit("node").result() == ray.get_runtime_context().get_node_id()
        assert placed[0].submit("variable", "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES").result() == "1"
        assert placed[0].submit("variable", "CUDA_VISIBLE_DEVICES").result() == os.environ.get("CUDA_VISIBLE_DEVICES")


def test_a_device_that_torch_cannot_use_is_named_with_its_component(
    on_ray: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "ray_nodes", lambda _: [Node(None, "cuda", 2)])  # Ray counts GPUs without torch
    message = r"cluster.device, for the component 'reward': found cuda:0, but this machine has no cuda device"
    with Cluster(config()) as cluster, pytest.raises(ConfigError, match=message):
        cluster.launch("reward", lambda placement: Toy(), name="Toys")


def test_processes_that_train_one_classifier_have_an_accelerator_each() -> None:
    require_own_devices(assign_devices(config(), "actor", 3, [TWO_GPUS, ONE_GPU]))
    require_own_devices(assign_devices(config(), "actor", 3, [CPU]))
    with pytest.raises(ConfigError, match=r"cluster.workers.actor: 4 processes would train .* on 3 accelerators"):
        require_own_devices(assign_devices(config(), "actor", 4, [TWO_GPUS, ONE_GPU]))


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
from rewardlab.workers import cluster as cluster_module
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
