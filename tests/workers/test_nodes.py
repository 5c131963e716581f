"""Workers on three nodes of a Ray cluster: where they run, what they learn, and what happens when a node is lost."""

import sys
import types
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from policy_runs import SAC, history, learned, same, train, weights, without_times
from ray.cluster_utils import Cluster as RayNodes
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from toy_workers import Toy

from rewardlab.config import config_from_mapping, load_config, text_override
from rewardlab.config.schema import ClusterConfig
from rewardlab.data import read_episodes
from rewardlab.errors import ConfigError, RewardlabError
from rewardlab.pipelines import collect, train_policy, train_reward
from rewardlab.pipelines.policy_training import PolicyTraining
from rewardlab.rewards import BinaryRewardClassifier
from rewardlab.run_state import load_state
from rewardlab.workers import Cluster, Group, WorkerDied, cluster, ray_actor
from rewardlab.workers.group import StateLost
from rewardlab.workers.placement import Node, NodeDevice, NodeLost, ray_nodes
from rewardlab.workers.ray_actor import RayWorker, WorkerProcess

pytestmark = pytest.mark.usefixtures("without_drawing")

SMALLEST_STORE = 80 * 2**20  # bytes; Ray accepts no less than 75 MiB
PLACES = {"actor": "0-0", "rollout": "1-0", "env": "1-0", "reward": "2-0"}
PLACED = ["cluster.backend=ray", *(f"cluster.component_placement.{name}={place}" for name, place in PLACES.items())]


class Nodes:
    """Adds nodes to the Ray cluster of the tests, all on this machine, and removes them."""

    def __init__(self) -> None:
        self.ray = RayNodes()
        self.ray.head_node = ray._private.worker._global_node

    def add(self, cpus: int = 1) -> Any:
        return self.ray.add_node(num_cpus=cpus, object_store_memory=SMALLEST_STORE)

    def remove(self, node: Any) -> None:
        self.ray.remove_node(node)

    @property
    def ids(self) -> list[str]:
        """The ID of each node, in the order of their numbers in `component_placement`."""
        return [str(node.id) for node in ray_nodes(ClusterConfig(backend="ray"))]

    def place(self, node: Any) -> str:
        return f"{self.ids.index(node.node_id)}-0"


@pytest.fixture(scope="module")
def nodes(ray_session: None) -> Iterator[Nodes]:
    nodes = Nodes()
    for _ in range(2):
        nodes.add()
    yield nodes
    for node in list(nodes.ray.worker_nodes):
        nodes.remove(node)


@pytest.fixture
def lost_node(nodes: Nodes) -> Iterator[Any]:
    """A fourth node, for tests that remove it."""
    node = nodes.add()
    yield node
    if node in nodes.ray.worker_nodes:
        nodes.remove(node)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The IDs of the nodes that the workers of each group run on, by the name of the group."""
    found: dict[str, list[str]] = {}
    launch = Cluster.launch

    def recorded(cluster: Cluster, *args: Any, **options: Any) -> Group:
        group = launch(cluster, *args, **options)
        if cluster.config.backend == "ray":
            found[group.name] = [node_of(worker) for worker in group]
        return group

    monkeypatch.setattr(Cluster, "launch", recorded)
    return found


def node_of(worker: Any) -> str:
    return str(ray.get(worker.actor.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    classifier = BinaryRewardClassifier(image_size=(3, 32, 32), width=4, hidden_dim=8, num_spatial_blocks=2)
    return classifier.save(tmp_path_factory.mktemp("model") / "best_model")


def toys(place: str) -> Cluster:
    places = {"env": place}
    return Cluster(config_from_mapping({"cluster": {"backend": "ray", "component_placement": places}}).cluster)


def test_ppo_over_three_nodes_learns_the_weights_of_one_process(
    nodes: Nodes, launched: dict[str, list[str]], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = [*learned(model, "runner.max_epochs=2"), "data.collection.enabled=true"]
    here = train(Path("runs/here"), *settings, "data.collection.save_dir=here")
    there = train(Path("runs/there"), *settings, "data.collection.save_dir=there", *PLACED)

    head, second, third = nodes.ids
    expected = {"RewardGroup": [third], "EnvGroup": [second], "ActorGroup": [head], "RolloutGroup": [second]}
    assert launched == expected
    assert same(weights(here), weights(there))
    assert without_times(history(Path("runs/here"))) == without_times(history(Path("runs/there")))
    # The environment worker writes to a relative path, from its own node.
    assert len(read_episodes("there")) == len(read_episodes("here")) > 0


def test_sac_with_demonstrations_over_all_nodes_learns_the_weights_of_one_process(
    nodes: Nodes, launched: dict[str, list[str]], model: Path, tmp_path: Path
) -> None:
    demos = tmp_path / "demos"
    shape = ["env.train.max_episode_steps=5", "env.train.image_size=[3,32,32]"]
    collect.run(
        load_config(
            "tabletop_pickcube",
            [*shape, "data.collection.episodes=2", text_override("data.collection.save_dir", str(demos))],
        )
    )
    settings = [*learned(model), *SAC, "runner.max_epochs=2", "cluster.workers.env=2", "reward.reward_type=continuous"]
    settings += [text_override("algorithm.sac.demo_path", str(demos))]
    here = train(tmp_path / "here", *settings)
    there = train(tmp_path / "there", *settings, "cluster.backend=ray")

    head, second, _ = nodes.ids  # workers without a place are spread over the nodes, lane by lane
    assert launched["EnvGroup"] == launched["RolloutGroup"] == [head, second]
    assert same(weights(here), weights(there))


def test_a_classifier_trained_by_two_nodes_has_the_weights_of_two_processes_on_one(
    nodes: Nodes, launched: dict[str, list[str]], write_toy_episodes: Callable[..., Path], tmp_path: Path
) -> None:
    data = write_toy_episodes(tmp_path / "data")

    def trained(name: str, *place: str) -> dict[str, torch.Tensor]:
        paths = {"data.data_path": data, "runner.logger.log_path": tmp_path, "runner.logger.experiment_name": name}
        small = ["reward.model.arch=resnet10", "reward.model.width=4", "reward.model.hidden_dim=8"]
        batches = ["actor.global_batch_size=16", "actor.micro_batch_size=8", "runner.max_epochs=1"]
        workers = ["cluster.backend=ray", "cluster.workers.actor=2"]
        where = [text_override(key, str(value)) for key, value in paths.items()]
        train_reward.run(load_config("reward_training", [*small, *batches, *workers, *where, *place]))
        return load_state(tmp_path / name / "checkpoints" / "last")[0]["network"]

    head, second, third = nodes.ids
    two = trained("two")
    assert launched["RewardTraining"] == [head, second]
    one = trained("one", "cluster.component_placement.actor=2-0")
    assert launched["RewardTraining"] == [third] * 2
    assert same(one, two)


def test_a_node_that_is_not_there_is_answered_with_how_many_there_are(nodes: Nodes) -> None:
    expected = r"cluster.component_placement.env: found 3-0, but the Ray cluster has 3 nodes, numbered from 0"
    with toys("3-0") as cluster, pytest.raises(ConfigError, match=expected):
        cluster.launch("env", lambda placement: Toy(), name="Toys")


def test_a_node_without_cpus_is_told_by_its_address(nodes: Nodes) -> None:
    node = nodes.add(cpus=0)
    with (
        toys(nodes.place(node)) as cluster,
        pytest.raises(
            RewardlabError, match=r"Toys\[0\] cannot run on node \S+, which offers no CPUs. Start it without"
        ),
    ):
        cluster.launch("env", lambda placement: Toy(), name="Toys")
    nodes.remove(node)


def test_an_error_on_another_node_names_worker_and_node(nodes: Nodes) -> None:
    with toys("1-0") as cluster:
        group = cluster.launch("env", lambda placement: Toy(), name="Toys")
        with pytest.raises(ConfigError, match=r"^some.key: found 3, expected 4 \(found by Toys\[0\] on node [\d.]+\)$"):
            group[0].submit("misconfigured").result()


def test_the_directory_of_the_driver_is_made_where_it_is_missing(tmp_path: Path, ray_session: None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        WorkerProcess("Toys[0]", Toy, nullcontext, str(tmp_path / "new"), sys.argv, "driver").build()
        assert Path.cwd() == tmp_path / "new"
    (tmp_path / "file").touch()
    worker = WorkerProcess("Toys[0]", Toy, nullcontext, str(tmp_path / "file"), sys.argv, "driver")
    message = r"Toys\[0\]: \S+/file, the current directory of this run, cannot be entered or made \(.+on node"
    with pytest.raises(RewardlabError, match=message):
        worker.build()


def test_what_is_not_installed_on_a_node_is_told_by_name(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that only this process has, first with what builds the worker, then with the class of the actor."""
    only_here = types.ModuleType("only_here")
    monkeypatch.setitem(sys.modules, "only_here", only_here)
    missing = r"Toys\[0\] cannot start on node [\d.]+, where Python finds no module 'only_here'. Install the same"
    for base in (Toy, WorkerProcess):
        only_here.Here = type("Here", (base,), {"__module__": "only_here"})  # type: ignore[attr-defined]
        make = only_here.Here if base is Toy else Toy  # type: ignore[attr-defined]
        if base is WorkerProcess:
            monkeypatch.setattr(ray_actor, "WorkerProcess", only_here.Here)  # type: ignore[attr-defined]
        with toys("1-0") as cluster, pytest.raises(RewardlabError, match=missing):
            cluster.launch("env", lambda placement, make=make: make(), name="Toys")


def test_results_are_lost_with_their_node_and_a_placed_worker_is_not_moved(nodes: Nodes, lost_node: Any) -> None:
    with toys(nodes.place(lost_node)) as cluster, toys("0-0") as others:
        worker = cluster.launch("env", lambda placement: Toy(), name="Toys")[0]
        other = others.launch("env", lambda placement: Toy(), name="Others")[0]
        numbers = worker.submit("numbers", 100_000)  # in the memory of its node
        ray.wait([numbers._ref], fetch_local=False)
        nodes.remove(lost_node)
        with pytest.raises(WorkerDied, match=r"before it sent Others\[0\] an argument of add"):
            other.submit("add", numbers, numbers).result()
        with pytest.raises(WorkerDied, match=r"Toys\[0\] died during numbers"):
            numbers.result()
        lost = r"node [\d.]+, on which Toys\[0\] ran, has left the Ray cluster, and no other node can run env worker 0"
        with pytest.raises(
            NodeLost, match=rf"{lost} \(cpu\).*choose another node with cluster.component_placement.env"
        ):
            worker.restart()


def test_the_copy_of_a_worker_is_lost_with_its_node(
    nodes: Nodes, lost_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, head = (NodeDevice(Node(node_id, "cpu"), "cpu") for node_id in (lost_node.node_id, nodes.ids[0]))
    worker = RayWorker(
        "Toys[0]",
        lambda device: Toy(),
        place,
        move=lambda lost: head,
        environment={},
        guard=lambda device: nullcontext(),
    )
    worker.start().result()
    worker.change("fill", 2000)
    nodes.remove(lost_node)
    # Ray may know of the death of a worker before it knows that the node is lost.
    known = iter([False])
    node_is_lost = RayWorker.node_is_lost
    monkeypatch.setattr(RayWorker, "node_is_lost", property(lambda worker: next(known, node_is_lost.fget(worker))))
    with (
        pytest.warns(RuntimeWarning, match=r"Toys\[0\] moves to node"),
        pytest.raises(StateLost, match=r"Toys\[0\] died with its node, and the copy of its state"),
    ):
        worker.submit("size", retry=True).result()
    worker.stop()


def test_a_worker_says_that_other_jobs_hold_the_cpus_that_it_waits_for(
    nodes: Nodes, lost_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Job:
        def is_there(self) -> bool:
            return True

    def warn_and_free(worker: RayWorker) -> None:
        warn_if_waiting(worker)
        ray.kill(job)

    warn_if_waiting = RayWorker.warn_if_waiting
    monkeypatch.setattr(RayWorker, "warn_if_waiting", warn_and_free)
    monkeypatch.setattr(ray_actor, "PATIENCE", 1.0)
    here = NodeAffinitySchedulingStrategy(lost_node.node_id, soft=False)
    job = ray.remote(Job).options(num_cpus=1, scheduling_strategy=here).remote()
    assert ray.get(job.is_there.remote())
    with (
        toys(nodes.place(lost_node)) as cluster,
        pytest.warns(RuntimeWarning, match=r"Toys\[0\] waits for 0.01 CPUs of node [\d.]+: other jobs hold all 1 of"),
    ):
        cluster.launch("env", lambda placement: Toy(), name="Toys")


class Losing:
    """Removes a node after the first iteration of a run that sees only this node and the head, in this order."""

    def __init__(self, nodes: Nodes, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node, self.head = node, nodes.ids[0]
        iterate = PolicyTraining.iterate

        def losing(training: PolicyTraining) -> dict[str, float]:
            if training.completed == 1 and node in nodes.ray.worker_nodes:
                nodes.remove(node)
            return iterate(training)

        monkeypatch.setattr(PolicyTraining, "iterate", losing)
        monkeypatch.setattr(cluster, "ray_nodes", lambda config: self.visible)

    @property
    def visible(self) -> list[Node]:
        alive = {str(node.id): node for node in ray_nodes(ClusterConfig(backend="ray"))}
        return [alive[node_id] for node_id in (self.node.node_id, self.head) if node_id in alive]


ON_RAY = ["cluster.backend=ray", "runner.max_epochs=2", "runner.save_interval=5"]


@pytest.mark.filterwarnings("ignore")
def test_all_workers_of_a_lost_node_go_to_another_and_the_run_learns_the_same_weights(
    nodes: Nodes, lost_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = train(tmp_path / "here", *ON_RAY, "cluster.backend=local")
    Losing(nodes, lost_node, monkeypatch)
    there = train(tmp_path / "there", *ON_RAY)

    assert same(weights(here), weights(there))
    rows = history(tmp_path / "there")
    assert rows[0].pop("went_back/actor_0") == 1  # before the first checkpoint: to the beginning
    assert without_times(rows) == without_times(history(tmp_path / "here"))
    words = "iteration 1: the learner was replaced and the run went back to its beginning; iteration 1 was made again"
    assert words in capsys.readouterr().out
    assert words.capitalize() in (tmp_path / "there" / "report.html").read_text()


@pytest.mark.filterwarnings("ignore")
def test_a_run_saves_and_says_how_it_continues_if_no_other_node_may_do_the_work(
    nodes: Nodes, lost_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Losing(nodes, lost_node, monkeypatch)
    out = tmp_path / "run"
    places = [f"cluster.component_placement.{name}=1-0" for name in ("actor", "rollout")]
    checkpoint = out / "checkpoints" / "global_step_1"
    command = f"rewardlab run {out}/config.yaml runner.resume_dir={checkpoint}"
    with pytest.raises(RewardlabError, match=r"on which EnvGroup\[0\] ran, has left the Ray cluster") as stopped:
        train(out, *ON_RAY, *places, "cluster.component_placement.env=0-0")

    assert str(stopped.value).endswith(f"The run continues with: {command}")
    local = ["cluster.backend=local", *(place.replace("1-0", "0-0") for place in places)]  # faster than another node
    train_policy.run(load_config(str(out / "config.yaml"), [f"runner.resume_dir={checkpoint}", *local]))
    assert [row["env_steps"] for row in history(out)] == [80, 160]
