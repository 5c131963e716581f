"""Policies that train on the models of the zoo: every shipped config, and what the loop promises to all models."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from policy_runs import SMALL_ZOO
from tensordict import TensorDict

from rewardlab.config import config_names, load_config
from rewardlab.config.schema import RewardConfig
from rewardlab.errors import ConfigError
from rewardlab.pipelines import collect, train_policy
from rewardlab.rewards import BaseRewardModel, RewardManager, load_reward_model, register_reward_model, with_rewards
from rewardlab.rewards.base import REWARD_MODELS, LooksAt
from rewardlab.rewards.trainer import RewardTrainer
from rewardlab.run_state import load_state
from rewardlab.workers.actor import ActorWorker
from rewardlab.workers.env import EnvWorker

CARTPOLE = [name for name in config_names() if name.startswith("zoo/cartpole_") and name.count("_") > 1]


# One of the runs of every shipped config draws its report, in `test_the_reward_reaches_the_learner`.
pytestmark = pytest.mark.usefixtures("without_drawing")


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two directories of two episodes each."""
    place = tmp_path_factory.mktemp("expert")
    for number in (1, 2):
        settings = ["data.collection.policy=random", f"data.collection.save_dir={place}/{number}", f"seed={number}"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CartPole knows no success
            collect.run(load_config("zoo/cartpole_expert", settings))
    return place


def train(config: str, out: Path, *overrides: str, expert: Path | None = None) -> Path:
    settings = [*SMALL_ZOO, f"runner.logger.log_path={out.parent}", f"runner.logger.experiment_name={out.name}"]
    if config.endswith(("trex", "drex")):
        settings.append(f"reward.model.options.expert_data_path=[{expert}/1,{expert}/2]")
    elif needs_expert(config):
        settings.append(f"reward.model.options.expert_data_path={expert}")
    return train_policy.run(load_config(config, [*settings, *overrides]))


def needs_expert(config: str) -> bool:
    return config.rpartition("_")[2] in ("gail", "cost", "red", "pwil", "pdeil", "trex", "drex")


def history(out: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_state(checkpoint)[0]["policy"]
    return found


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("config", CARTPOLE)
def test_the_reward_reaches_the_learner(
    config: str, episodes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry test of every shipped config; a reward that changes nothing about the policy is worth nothing."""
    name = config.removeprefix("zoo/cartpole_").partition("_")[2]
    policies = []
    for weight in (0, 1000, 1):
        more = ["reward.combine_mode=add", f"reward.reward_weight={weight}"]
        if name in ("trex", "drex", "gail", "guided_cost", "rnd", "icm", "ngu"):
            more.append("++reward.model.options.update_per_collect=10")
        if weight == 1:
            monkeypatch.undo()  # this one draws its report
        policies.append(weights(train(config, tmp_path / f"weight_{weight}", *more, expert=episodes)))
    assert not any(same(policies[one], policies[other]) for one, other in ((0, 1), (0, 2), (1, 2)))

    run = tmp_path / "weight_1"
    saved = load_reward_model(run / "reward_models" / "last" / name)
    assert saved.model_type == name
    assert (run / "reward_models" / "best" / name / "model.safetensors").exists()
    last = history(run)[-1]
    assert np.isfinite([last[f"reward_model/{name}_mean"], last[f"reward_model/{name}_std"]]).all()


# One of each family; benchmarks/exact_resume.py compares every shipped config.
RESUMED = ["cartpole_ppo_gail", "cartpole_dqn_icm", "cartpole_ppo_ngu", "cartpole_ppo_trex", "cartpole_dqn_pwil"]
RESUMED.append("bitflip_dqn_her")


@pytest.mark.parametrize("config", [f"zoo/{name}" for name in RESUMED])
def test_a_resumed_run_trains_policy_and_reward_model_as_if_unbroken(
    config: str, episodes: Path, tmp_path: Path
) -> None:
    plan = ["runner.max_epochs=4", "runner.save_interval=2", "runner.val_check_interval=2"]
    unbroken = train(config, tmp_path / "unbroken", *plan, expert=episodes)
    out = tmp_path / "broken"
    half = train(config, out, *plan, "runner.max_epochs=2", expert=episodes)
    resumed = train(config, out, *plan, f"runner.resume_dir={half}", expert=episodes)
    assert same(weights(resumed), weights(unbroken))
    assert history(out) == history(tmp_path / "unbroken")
    name = config.rpartition("_")[2]
    models = [load_reward_model(run / "reward_models" / "last" / name) for run in (out, tmp_path / "unbroken")]
    assert same(models[0].state_dict(), models[1].state_dict())


def test_random_warm_up_reaches_the_model(tmp_path: Path) -> None:
    """The first steps are made before anything is learned; they are what novelty is measured against."""
    out = tmp_path / "run"
    train("zoo/cartpole_dqn_rnd", out, "algorithm.dqn.learning_starts=100000")
    assert "train/loss" not in history(out)[-1]
    model = load_reward_model(out / "reward_models" / "last" / "rnd")
    assert int(model.state_dict()["updates"]) == 3 * model.update_per_collect  # type: ignore[attr-defined]
    assert int(model.reward_statistics.count) == 3 * 8 * 4  # type: ignore[attr-defined]


def test_collected_data_is_cleared_by_iterations_of_the_loop(tmp_path: Path) -> None:
    train("zoo/cartpole_ppo_rnd", tmp_path / "run", "reward.model.options.clear_buffer_per_iters=2")
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    data = load_state(checkpoint)[0]["rewards"]["models"]["rnd"]["model"]["data"]
    assert len(next(iter(data.values()))) == 8 * 4  # of the third iteration alone


def test_several_models_are_weighted_summed_and_logged_apart(episodes: Path, tmp_path: Path) -> None:
    gail = f"{{model_type: gail, weight: 0.5, options: {{expert_data_path: {episodes}}}}}"
    out = tmp_path / "run"
    train(
        "zoo/cartpole_ppo_rnd",
        out,
        f"reward.model=[{{model_type: rnd, weight: 2.0, options: {{intrinsic_reward_type: assign}}}},{gail}]",
        expert=episodes,
    )
    for row in history(out):
        expected = 2 * row["reward_model/rnd_mean"] + 0.5 * row["reward_model/gail_mean"]
        assert row["rollout/rewards"] == pytest.approx(expected, rel=1e-4)
    assert {path.name for path in (out / "reward_models" / "last").iterdir()} == {"rnd", "gail"}


def test_two_models_of_one_type_report_their_own_losses(tmp_path: Path) -> None:
    models = "reward.model=[{model_type: rnd}, {model_type: rnd, options: {hidden_size_list: [4], seed: 7}}]"
    train("zoo/cartpole_ppo_rnd", tmp_path / "run", models, "reward.combine_mode=add")
    last = history(tmp_path / "run")[-1]
    assert last["reward_model/rnd_loss"] != last["reward_model/rnd_2_loss"]


def test_off_policy_transitions_are_scored_by_the_newest_model(tmp_path: Path) -> None:
    cfg = load_config("zoo/cartpole_dqn_rnd", [*SMALL_ZOO, "reward.model.options.intrinsic_reward_type=assign"])
    env = EnvWorker(cfg.env.train, seed=0, keep_next=True)
    actor, trainer = ActorWorker(cfg, *env.spaces()), RewardTrainer.from_config(cfg, env.spaces())
    env.begin(0)
    for _ in range(8):
        env.step(np.zeros(4, np.int64))
    rollout = env.fetch().unpack().update({"action": torch.zeros(8, 4, dtype=torch.int64)})
    rollout = rollout.update({"reward": torch.zeros(8, 4)})
    actor.add(rollout, env_steps=0)
    for _ in range(2):
        trainer.update(rollout, 1)
        actor.set_rewards(trainer.manager.rule, trainer.state_dict())
        batch = actor.sample()
        assert torch.allclose(batch["reward"], trainer.manager.estimate(batch)["rnd"])
        assert batch["reward"].std() > 0
    assert not batch["env_reward"].eq(batch["reward"]).any()


class DocumentedBalance(BaseRewardModel):
    """A model written for DI-engine: it takes its whole config, and lists of dictionaries."""

    def __init__(self, config: Any, device: str, tb_logger: Any) -> None:
        self.cfg, self.tb_logger = config, tb_logger
        self.train_data: list[dict[str, Any]] = []
        self.seen = 0

    def collect_data(self, data: list[dict[str, Any]]) -> None:
        self.train_data.extend(data)

    def train(self) -> None:
        self.seen += len(self.train_data)
        self.tb_logger.add_scalar("reward_model/seen", self.seen, self.seen)

    def clear_data(self, iter: int) -> None:
        self.train_data.clear()

    def estimate(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**item, "reward": -self.cfg.slope * item["next_obs"][2].abs()} for item in data]


@pytest.fixture
def documented() -> Iterator[None]:
    register_reward_model("documented_balance")(DocumentedBalance)
    yield
    del REWARD_MODELS._entries["documented_balance"]


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_model_written_for_ding_trains_with_the_policy(algorithm: str, tmp_path: Path, documented: None) -> None:
    out = tmp_path / "run"
    own = ["reward.use_reward_model=true", "reward.cotrain=true", "reward.model.model_type=documented_balance"]
    train(f"zoo/cartpole_{algorithm}", out, *own, "+reward.model.options.slope=2.0")
    last = history(out)[-1]
    assert last["reward_model/seen"] == 3 * 8 * 4
    assert -2 < last["rollout/rewards"] < 0


@pytest.mark.parametrize("name", ["pwil", "ngu"])
def test_rewards_of_an_episode_do_not_depend_on_where_rollouts_are_cut(name: str, episodes: Path) -> None:
    options = [f"reward.model.options.expert_data_path={episodes}"] if name == "pwil" else []
    cfg = load_config(f"zoo/cartpole_ppo_{name}", [*options])
    env = EnvWorker(cfg.env.train, seed=0, keep_next=True)
    rewards = RewardTrainer.from_config(cfg, env.spaces())
    env.begin(0)
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, (60, 8))
    for action in actions:
        env.step(action)
    steps: TensorDict = env.fetch().unpack().update({"action": torch.from_numpy(actions)})
    whole = rewards.estimate_rollout(steps).estimates[name]
    rewards.begin()
    parts = [rewards.estimate_rollout(steps[start : start + 7]) for start in range(0, 60, 7)]
    pieces = torch.cat([part.estimates[name] for part in parts])
    assert torch.allclose(whole, pieces, rtol=1e-4)
    assert whole.std() > 0


class Countdown(BaseRewardModel):
    """The number of a step in its episode; says nothing of what it needs of earlier rollouts."""

    looks_at: ClassVar[LooksAt] = "episodes"

    def estimate(self, data: Any) -> Any:
        rewards, count = torch.zeros(data.batch_size), torch.zeros(data.batch_size[1])
        for t in range(len(data)):
            count = count + 1
            rewards[t] = count
            count = count * ~(data["terminated"][t] | data["truncated"][t])
        return with_rewards(data, rewards)

    def train(self) -> None: ...
    def collect_data(self, data: Any) -> None: ...
    def clear_data(self, iter: int) -> None: ...


def test_a_model_that_says_no_more_is_shown_unfinished_episodes_whole() -> None:
    rewards = RewardTrainer(RewardManager({"count": Countdown()}, RewardConfig()))
    ended = torch.zeros(9, 2, dtype=torch.bool)
    ended[4, 0] = True
    columns = {"env_reward": torch.zeros(9, 2), "terminated": ended, "truncated": torch.zeros_like(ended)}
    steps = TensorDict({**columns, "action": torch.zeros(9, 2)}, batch_size=[9, 2])
    parts = [rewards.estimate_rollout(part).estimates["count"] for part in steps.split(3)]
    assert torch.cat(parts).T.tolist() == [[1, 2, 3, 4, 5, 1, 2, 3, 4], [*range(1, 10)]]
    rewards.begin()
    assert rewards.estimate_rollout(steps[:1]).estimates["count"].tolist() == [[1, 1]]


def test_an_episode_that_never_ends_is_learned_from_in_parts() -> None:
    cfg = load_config("zoo/cartpole_ppo_ngu", ["+reward.model.options.memory_size=20", "env.train.num_envs=2"])
    env = EnvWorker(cfg.env.train, seed=0, keep_next=True)
    rewards = RewardTrainer.from_config(cfg, env.spaces())
    model = rewards.models["ngu"]
    updates = []
    for iteration in range(6):
        observation = torch.randn(8, 2, 4, generator=torch.Generator().manual_seed(iteration))
        columns = {"observation": {"state": observation}, "next_observation": {"state": observation}}
        flags = torch.zeros(8, 2, dtype=torch.bool)
        columns |= {"terminated": flags, "truncated": flags.clone(), "action": torch.zeros(8, 2, dtype=torch.int64)}
        columns["env_reward"] = torch.zeros(8, 2)
        rewards.update(TensorDict(columns, batch_size=[8, 2]), iteration)
        updates.append(int(model.state_dict()["updates"]))
        assert len(rewards._episodes) <= 2 * 20
        assert all(len(memory) <= 20 for memory in rewards._carried["ngu"])
    assert updates[1] == 0
    assert 0 < updates[2] == updates[3] < updates[5]


def test_a_config_that_pretrains_runs_without_its_model(tmp_path: Path) -> None:
    where = [f"runner.logger.log_path={tmp_path}", "reward.use_reward_model=false", "runner.max_epochs=1"]
    checkpoint = train_policy.run(load_config("zoo/cartpole_ppo_red", [*SMALL_ZOO, *where]))
    (row,) = history(checkpoint.parents[1])
    assert row["rollout/rewards"] == 1  # CartPole's own
    assert "rollout/model_rewards" not in row


@pytest.mark.parametrize(
    ("config", "overrides", "words"),
    [
        ("zoo/cartpole_ppo_gail", ["reward.pretrain=true"], "learns to tell the expert from the policy"),
        ("zoo/cartpole_ppo_rnd", ["reward.pretrain=true"], "rnd does not learn from expert data"),
        ("zoo/cartpole_ppo_rnd", ["reward.cotrain=false"], "'rnd' begins untrained"),
        ("zoo/cartpole_ppo_rnd", ["reward.reward_mode=terminal"], "models over transitions score every step"),
        ("zoo/cartpole_ppo_rnd", ["reward.model.hidden_dim=3"], "unknown key of reward model 'rnd' 'hidden_dim'"),
        ("zoo/cartpole_ppo_rnd", ["+reward.model.options.seed=x"], "seed: found 'x', expected a whole number"),
        ("zoo/cartpole_ppo_rnd", ["+reward.model.options.hidden_size_list=[0]"], "hidden_size_list: found"),
        ("zoo/cartpole_ppo_rnd", ["reward.model=[{model_type: rnd},{model_type: icm}]"], "set combine_mode to add"),
        ("zoo/cartpole_ppo_red", ["reward.model.options.expert_data_path=3"], "found 3, expected a path"),
        ("zoo/cartpole_dqn", ["reward.use_reward_model=true", "reward.model.model_type=her"], "achieved_goal"),
        ("zoo/bitflip_dqn_her", ["algorithm.name=ppo"], "her learns from stored episodes, which ppo does not keep"),
        ("zoo/bitflip_dqn_her", ["reward.combine_mode=add"], "expected replace"),
        ("zoo/cartpole_ppo_rnd", ["reward.model.model_type=rdn"], "Did you mean 'rnd'?"),
        ("zoo/cartpole_ppo_rnd", ["reward.model.options.learning_rte=1.0"], "Did you mean 'learning_rate'?"),
        ("zoo/cartpole_ppo_rnd", ["reward.model.model_type=resnet_reward"], "random weights are never used"),
    ],
)
def test_what_cannot_be_is_said(config: str, overrides: list[str], words: str, episodes: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        train(config, tmp_path / "run", *overrides, expert=episodes)


def test_expert_data_may_be_given_by_the_caller(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    expert = {"observation": rng.normal(size=(20, 4)).astype(np.float32), "action": rng.integers(0, 2, 20)}
    settings = [*SMALL_ZOO, f"runner.logger.log_path={tmp_path}", "reward.model.options.expert_data_path=null"]
    train_policy.run(load_config("zoo/cartpole_ppo_red", settings), expert_data=lambda: expert)
    assert (tmp_path / "cartpole_ppo_red" / "reward_models" / "last" / "red").is_dir()


def test_an_imitation_model_goes_on_learning_from_its_checkpoint(episodes: Path, tmp_path: Path) -> None:
    first = train("zoo/cartpole_ppo_gail", tmp_path / "first", expert=episodes)
    saved = first.parents[1] / "reward_models" / "last" / "gail"
    before = int(load_reward_model(saved).state_dict()["updates"])
    more = [f"reward.model.checkpoint_path={saved}", "reward.model.options.learning_rate=0.002"]
    train("zoo/cartpole_ppo_gail", tmp_path / "second", *more, expert=episodes)
    after = int(load_reward_model(tmp_path / "second" / "reward_models" / "last" / "gail").state_dict()["updates"])
    assert after == 2 * before


def test_expert_data_that_nobody_takes_is_refused(tmp_path: Path) -> None:
    cfg = load_config("zoo/cartpole_ppo_rnd", [*SMALL_ZOO, f"runner.logger.log_path={tmp_path}"])
    with pytest.raises(ConfigError, match="no reward model takes it: found rnd"):
        train_policy.run(cfg, expert_data={"observation": np.zeros((3, 4))})


def test_an_earlier_stage_gives_its_policy_and_not_its_stored_rewards(tmp_path: Path) -> None:
    first = train("zoo/cartpole_dqn", tmp_path / "first")
    second = train("zoo/cartpole_dqn_rnd", tmp_path / "second", f"runner.resume_dir={first}", "runner.max_epochs=5")
    state = load_state(second)[0]
    assert state["iteration"] == 5
    assert state["actor"]["replay"]["size"] == 2 * 8 * 4
