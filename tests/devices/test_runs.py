"""Whole runs on the toy device: it refuses CPU tensors, and the numbers are those of the CPU."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from policy_runs import SAC, SMALL, SMALL_ZOO, history, kept_actors, learned, train, weights, without_times
from rich.console import Console
from toy_device import toy_devices

from rewardlab.config import config_names, load_config
from rewardlab.devices import OutOfMemory, device_of
from rewardlab.pipelines import collect, evaluate, train_policy, train_reward
from rewardlab.rewards import load_success_classifier
from rewardlab.rewards.base import REWARD_MODELS, BaseRewardModel
from rewardlab.run_state import load_state
from rewardlab.workers.rollout import RolloutWorker

pytestmark = pytest.mark.usefixtures("without_drawing")

FOUR = ["env.train.num_envs=4", "env.eval.num_envs=4"]
ZOO = [*SMALL_ZOO, "reward.model.options.update_per_collect=5"]
# Every model of the zoo off policy, where more happens to it: it judges stored transitions again.
ZOO_RUNS = [name for name in config_names() if name.startswith("zoo/cartpole_dqn_")]
QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def cart(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two directories of CartPole episodes, for models that learn from an expert."""
    places = [tmp_path_factory.mktemp("cart") / str(seed) for seed in (1, 2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CartPole knows no success
        for seed, place in enumerate(places):
            shown = ["data.collection.policy=random", f"data.collection.save_dir={place}", f"seed={seed}"]
            collect.run(load_config("zoo/cartpole_expert", shown), console=QUIET)
    return places


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier as `train-reward` leaves it."""
    place = tmp_path_factory.mktemp("recorded")
    shown = ["data.collection.episodes=12", "data.collection.policy=noisy_expert", "env.train.image_size=[3,32,32]"]
    collect.run(load_config("tabletop_pickcube", [*shown, f"data.collection.save_dir={place / 'data'}"]), console=QUIET)
    return train_classifier(place / "run", place / "data", "binary_classifier")


def train_classifier(out: Path, data: Path, model_type: str, *more: str) -> Path:
    small = [f"reward.model.model_type={model_type}", "reward.model.width=4", "reward.model.hidden_dim=8"]
    small += [f"data.data_path={data}", "data.num_samples_per_episode=8", "runner.max_epochs=2"]
    small += [f"runner.logger.log_path={out}", *more]
    return train_reward.run(load_config("reward_training", small), console=QUIET)


@contextmanager
def kept_devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The devices of all policies and reward models that act, judge or learn inside."""
    found: set[str] = set()
    act, score = RolloutWorker.act, BaseRewardModel.score

    def watched_act(self: RolloutWorker, current: object) -> object:
        found.add(f"policy on {device_of(self.policy)}")
        return act(self, current)  # type: ignore[arg-type]

    def watched_score(self: BaseRewardModel, data: object) -> torch.Tensor:
        for module in self._modules().values():
            found.update(f"reward model on {parameter.device}" for parameter in module.parameters())
        return score(self, data)

    with monkeypatch.context() as patch, kept_actors(monkeypatch) as actors:
        patch.setattr(RolloutWorker, "act", watched_act)
        patch.setattr(BaseRewardModel, "score", watched_score)
        yield found
        found.update(f"learner on {parameter.device}" for a in actors for parameter in a.learner.policy.parameters())


def both(tmp_path: Path, config: str, *settings: str) -> tuple[Path, Path]:
    """The checkpoints of one run on the CPU and on the toy device."""

    def run(name: str, *more: str) -> Path:
        where = [f"runner.logger.log_path={tmp_path}", f"runner.logger.experiment_name={name}"]
        return train_policy.run(load_config(config, [*settings, *where, *more]), console=QUIET)

    on_cpu = run("cpu", "cluster.device=cpu")
    with toy_devices():
        return on_cpu, run("toy")  # auto takes the accelerator


def check_same(runs: tuple[Path, Path], tolerance: float = 0.0) -> None:
    one, other = (weights(run) for run in runs)
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=tolerance, atol=tolerance, msg=name)
    rows = [without_times(history(run.parent.parent)) for run in runs]
    for one_row, other_row in zip(*rows, strict=True):
        assert one_row == (pytest.approx(other_row, rel=1e-3, abs=1e-5) if tolerance else other_row)


# oneDNN's layout for classifiers is for the CPU alone: their scores differ in the last bits.
CLOSE = 1e-4


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        ("tabletop_ppo_mlp", ["algorithm.ppo.normalize_reward=true", "algorithm.ppo.target_kl=0.1"]),
        ("tabletop_ppo_cnn", ["algorithm.ppo.image_shift=true", "actor.threads=1"]),
        ("tabletop_ppo_mlp", [*SAC, "algorithm.sac.num_critics=4", "algorithm.sac.critic_subset=2"]),
        ("tabletop_ppo_cnn", [*SAC, "algorithm.sac.image_shift=true", "actor.threads=1"]),
        ("zoo/bitflip_dqn_her", [*FOUR, "algorithm.dqn.learning_starts=64", "actor.global_batch_size=32"]),
        ("zoo/cartpole_ppo_ngu", ZOO),
    ],
    ids=["ppo", "ppo from images", "sac", "sac from images", "dqn with hindsight", "ppo with ngu"],
)
def test_a_policy_learns_the_same(config: str, settings: list[str], tmp_path: Path) -> None:
    small = SMALL if config.startswith("tabletop") else []
    check_same(both(tmp_path, config, *small, "runner.max_epochs=2", *settings))


@pytest.mark.parametrize("config", ZOO_RUNS)
def test_every_model_of_the_zoo_gives_the_same_rewards(config: str, cart: list[Path], tmp_path: Path) -> None:
    kind = config.rpartition("_")[2]
    expert = {"trex": f"[{cart[0]},{cart[1]}]", "drex": f"[{cart[0]},{cart[1]}]"}
    expert |= dict.fromkeys(("gail", "cost", "red", "pwil", "pdeil"), str(cart[0]))
    settings = [f"reward.model.options.expert_data_path={expert[kind]}"] if kind in expert else []
    own = SMALL_ZOO if kind == "pdeil" else ZOO  # pdeil makes no updates
    check_same(both(tmp_path, config, *own, *settings))


def test_no_model_of_the_zoo_is_left_out() -> None:
    tried = {name.removeprefix("zoo/cartpole_dqn_") for name in ZOO_RUNS} | {"her"}
    registered = [REWARD_MODELS[name] for name in REWARD_MODELS]
    ours = {cls for cls in registered if cls.__module__.startswith("rewardlab.")}
    assert {cls.model_type for cls in ours if cls.looks_at != "frames"} == tried


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_a_classifier_scores_and_learns_beside_a_policy(recorded: Path, algorithm: str, tmp_path: Path) -> None:
    settings = learned(recorded, "reward.cotrain=true", "reward.reward_type=continuous", "runner.max_epochs=2")
    settings += ["reward.model.options.update_per_collect=5"]
    runs = both(tmp_path, "tabletop_ppo_mlp", *SMALL, *settings, *(SAC if algorithm == "sac" else []))
    check_same(runs, CLOSE)
    models = [load_success_classifier(run.parents[1] / "reward_models/last/binary_classifier") for run in runs]
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert models[0].threshold == pytest.approx(models[1].threshold, rel=1e-2)


def test_components_on_different_devices_do_not_meet(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = "cluster.component_placement={actor: 0-0, rollout: 0-1, reward: 0-1, env: 0-0}"
    bonus = "{model_type: rnd, weight: 3.0, cotrain: true, options: {intrinsic_reward_type: assign}}"
    two_terms = f"reward.model=[{{checkpoint_path: {recorded}, ends_episode: true}}, {bonus}]"
    settings = ["reward.use_reward_model=true", "reward.reward_type=continuous", two_terms, places, *SAC]
    with toy_devices(), kept_devices(monkeypatch) as devices:
        train(tmp_path / "run", *settings, "runner.max_epochs=2")
    assert {"learner on toy:0", "policy on toy:1", "reward model on toy:1"} <= devices
    assert not any("cpu" in device for device in devices)


def test_a_run_can_move_to_another_device_and_back(tmp_path: Path) -> None:
    scaled = "algorithm.ppo.normalize_reward=true"
    half = train(tmp_path / "moved", scaled, "runner.max_epochs=2", "cluster.device=cpu")
    with toy_devices():
        moved = train(tmp_path / "moved", scaled, "runner.max_epochs=4", f"runner.resume_dir={half}")
    stayed = train(tmp_path / "stayed", scaled, "runner.max_epochs=4", "cluster.device=cpu")
    check_same((stayed, moved))
    assert all(tensor.device.type == "cpu" for tensor in weights(moved).values())
    with toy_devices():
        assert evaluate.evaluate(moved, episodes=2, seed=0)[1] == evaluate.evaluate(stayed, episodes=2, seed=0)[1]


@pytest.mark.parametrize("model_type", ["resnet_reward", "binary_classifier"])
def test_a_classifier_trains_the_same(recorded: Path, model_type: str, tmp_path: Path) -> None:
    data = recorded.parents[2] / "data"
    one = train_classifier(tmp_path / "cpu", data, model_type, "cluster.device=cpu")
    with toy_devices():
        other = train_classifier(tmp_path / "toy", data, model_type)
    models = [load_success_classifier(path) for path in (one, other)]
    for mine, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        # On the CPU, pictures have their colours last in memory: convolutions round in another order.
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
    models[1].network.load_state_dict(models[0].network.state_dict())
    with toy_devices():
        images = torch.randint(0, 255, (3, 32, 32, 3), dtype=torch.uint8)
        on_toy = models[1].to("toy").probabilities(images)
        there = models[0].probabilities(images.to("toy"))  # frames of a simulator on another device than the model's
    torch.testing.assert_close(models[0].probabilities(images), on_toy, rtol=0, atol=1e-5)
    torch.testing.assert_close(models[0].probabilities(images), there, rtol=0, atol=0)


SHARDED = """
import sys
sys.path.insert(0, sys.argv[1])
from rich.console import Console
from toy_device import COLLECTIVES, toy_devices
from rewardlab.config import load_config
from rewardlab.pipelines import train_reward

with toy_devices():
    train_reward.run(load_config("reward_training", sys.argv[2:]), console=Console(quiet=True))
print(sorted(set(COLLECTIVES)))
"""


def test_sharded_training_gives_collectives_no_cpu_tensor(recorded: Path, tmp_path: Path) -> None:
    """NCCL would refuse one; the toy device does so too."""
    script = tmp_path / "sharded.py"
    script.write_text(SHARDED)
    small = ["reward.model.model_type=resnet_reward", "reward.model.width=4", "reward.model.hidden_dim=8"]
    small += [f"data.data_path={recorded.parents[2] / 'data'}", "data.num_samples_per_episode=8", "runner.max_epochs=1"]
    small += [
        "runner.max_steps=2",
        "actor.global_batch_size=16",
        "actor.micro_batch_size=4",
        "reward.model.dropout=0.0",
    ]
    small += ["data.augment=false", "actor.optim.max_grad_norm=1.0"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script)]
    command = [*launcher, str(Path(__file__).parent), *small, f"runner.logger.log_path={tmp_path / 'two'}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr[-3000:]
    for operation in ("_allgather_base", "_reduce_scatter_base", "allreduce", "broadcast"):
        assert operation in ended.stdout, ended.stdout
    train_reward.run(
        load_config("reward_training", [*small, f"runner.logger.log_path={tmp_path / 'one'}"]), console=QUIET
    )
    states = [load_state(tmp_path / place / "checkpoints" / "last")[0] for place in ("one", "two")]
    curves = [[loss for _, loss in state["progress"]["curves"]["train/loss"]] for state in states]
    assert len(curves[0]) == 2
    assert curves[0] == pytest.approx(curves[1], rel=0.02)


def test_a_device_without_memory_is_named_with_its_component_and_key(recorded: Path, tmp_path: Path) -> None:
    with (
        toy_devices(memory=30_000),
        pytest.raises(OutOfMemory, match=r"toy:0 has no memory left .* 'actor' .*placement.actor"),
    ):
        train(tmp_path / "run", "actor.model.hidden_sizes=[512,512]", "runner.max_epochs=1")
    with toy_devices(memory=30_000), pytest.raises(OutOfMemory, match="component 'actor'"):
        train_classifier(tmp_path / "toy", recorded.parents[2] / "data", "resnet_reward", "reward.model.width=32")
