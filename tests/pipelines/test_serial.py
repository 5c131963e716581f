"""The serial pipelines: what they set, what they refuse, and that they train."""

import dataclasses
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rewardlab.compat import CompatibilityNote
from rewardlab.config import ExperimentConfig, config_from_mapping, to_yaml
from rewardlab.errors import ConfigError
from rewardlab.pipelines import (
    serial_pipeline_reward_model_offpolicy,
    serial_pipeline_reward_model_onpolicy,
    train_policy,
)
from rewardlab.pipelines.serial import BUDGET, serial_config
from rewardlab.rewards import BaseRewardModel, register_reward_model
from rewardlab.rewards.base import REWARD_MODELS

MAIN = {
    "exp_name": "cartpole_rnd",
    "env": {"collector_env_num": 4, "evaluator_env_num": 2, "n_evaluator_episode": 2, "stop_value": 195},
    "reward_model": {
        "intrinsic_reward_type": "add",
        "learning_rate": 1e-3,
        "obs_shape": 4,
        "batch_size": 16,
        "update_per_collect": 3,
        "clear_buffer_per_iters": 2,
    },
    "policy": {
        "cuda": False,
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [16]},
        "learn": {"batch_size": 16, "learning_rate": 0.001},
        "collect": {"n_sample": 32},
        "eval": {"evaluator": {"eval_freq": 1}},
    },
}
OURS = {
    "env": {"train": {"id": "CartPole-v1", "num_envs": 4}},
    "reward": {"model": {"model_type": "rnd"}},
    "runner": {"max_epochs": 7, "max_env_steps": 500},
}


def create(policy: str) -> dict[str, Any]:
    return {
        "env": {"type": "cartpole", "import_names": ["dizoo.classic_control.cartpole.envs.cartpole_env"]},
        "env_manager": {"type": "base"},
        "policy": {"type": policy},
        "reward_model": {"type": "rnd"},
    }


def ours(**algorithm: Any) -> dict[str, Any]:
    return {**OURS, "algorithm": algorithm}


def test_the_call_decides_seed_and_how_the_reward_model_learns() -> None:
    cfg = serial_config((MAIN, create("ppo")), on_policy=True, seed=3, cooptrain_reward=False, pretrain_reward=True)

    assert cfg.seed == 3
    assert (cfg.reward.use_reward_model, cfg.reward.cotrain, cfg.reward.pretrain) == (True, False, True)
    assert (cfg.runner.task, cfg.runner.logger.experiment_name) == ("train_policy", "cartpole_rnd")
    cfg = serial_config(ours(), on_policy=True)
    assert (cfg.seed, cfg.reward.cotrain, cfg.reward.pretrain) == (0, True, False)


def test_the_smaller_limit_holds() -> None:
    cfg = serial_config(ours(), on_policy=True)
    assert (cfg.runner.max_env_steps, cfg.runner.max_steps, cfg.runner.max_epochs) == (500, BUDGET, 7)
    cfg = serial_config(ours(), on_policy=True, max_env_step=300, max_train_iter=20)
    assert (cfg.runner.max_env_steps, cfg.runner.max_steps, cfg.runner.max_epochs) == (300, 20, 7)


def test_a_pair_ends_with_its_budget_alone() -> None:
    cfg = serial_config((MAIN, create("dqn")), on_policy=False, max_env_step=1000)
    assert cfg.algorithm.dqn.rollout_steps * cfg.env.train.num_envs == 32
    assert (cfg.runner.max_env_steps, cfg.runner.max_epochs) == (1000, 32)
    assert serial_config([MAIN, create("dqn")], on_policy=False).runner.max_env_steps == BUDGET == 10_000_000


def test_our_own_configs_in_every_form(tmp_path: Path) -> None:
    mapping = ours(name="sac")
    cfg = serial_config(mapping, on_policy=False)
    file = tmp_path / "mine.yaml"
    file.write_text(to_yaml(config_from_mapping(mapping)))

    assert isinstance(cfg, ExperimentConfig)
    assert serial_config(config_from_mapping(mapping), on_policy=False) == cfg
    assert serial_config(file, on_policy=False) == cfg
    assert serial_config(str(file), on_policy=False) == cfg
    with pytest.raises(ConfigError, match=r"reward\.model\.checkpoint_path"):  # this one names no reward model
        serial_config("tabletop_ppo_mlp", on_policy=True)


def test_several_models_stay_several() -> None:
    models = [{"model_type": "rnd", "weight": 0.5}, {"model_type": "icm", "cotrain": False}]
    cfg = config_from_mapping({**OURS, "reward": {"model": models}})
    assert serial_config(cfg, on_policy=True).reward.models == cfg.reward.models


def test_a_place_for_the_results(tmp_path: Path) -> None:
    cfg = serial_config((MAIN, create("ppo")), on_policy=True, log_path=tmp_path / "a, b")
    assert cfg.runner.logger.log_path == str(tmp_path / "a, b")


@pytest.mark.parametrize(
    ("policy", "on_policy", "other"),
    [("dqn", True, "offpolicy"), ("sac", True, "offpolicy"), ("ppo", False, "onpolicy")],
)
def test_the_wrong_kind_of_algorithm_is_sent_to_the_other_function(policy: str, on_policy: bool, other: str) -> None:
    with pytest.raises(ConfigError, match=f"found {policy}.*serial_pipeline_reward_model_{other}"):
        serial_config(ours(name=policy), on_policy=on_policy)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_env_step": 0}, "max_env_step: found 0"),
        ({"max_train_iter": 1e6}, "max_train_iter: found 1000000.0"),
        ({"seed": -1}, "seed: found -1"),
        ({"cooptrain_reward": 2}, "reward.cotrain: found 2"),
        ({"input_cfg": 3}, "input_cfg: found int, expected the pair"),
        ({"input_cfg": (MAIN,)}, "input_cfg: found tuple, expected the pair"),
        ({"input_cfg": "cartpole_ppo_config.py"}, "give the pair"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        serial_config(**{"input_cfg": ours(), "on_policy": True, **arguments})


def test_what_a_pair_loses_is_said_and_nothing_else() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        serial_config((MAIN, create("dqn")), on_policy=False)
    unknown = {**MAIN, "reward_model": {"curiosity": 1}}
    with pytest.warns(CompatibilityNote, match=r"not known here are ignored: reward_model\.curiosity$"):
        serial_config((unknown, create("dqn")), on_policy=False)


def test_a_reward_model_of_ones_own_works_in_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REWARD_MODELS, "_entries", dict(REWARD_MODELS._entries))

    @register_reward_model("serial_test_model")
    @dataclasses.dataclass(kw_only=True, eq=False)
    class Mine(BaseRewardModel):
        bonus: float = 1.0

    own = {**MAIN, "reward_model": {"type": "serial_test_model", "bonus": 2.0}}
    cfg = serial_config((own, {**create("dqn"), "reward_model": {"type": "serial_test_model"}}), on_policy=False)
    assert cfg.reward.models[0].options == {"bonus": 2.0}


def test_ppo_offpolicy_runs_through_both_pipelines_with_a_note(tmp_path: Path) -> None:
    """As the pair that DI-engine ships for curiosity, whose file calls the off-policy one."""
    reward = {key: value for key, value in MAIN["reward_model"].items() if key != "clear_buffer_per_iters"}  # type: ignore[attr-defined]
    main = {**MAIN, "reward_model": {**reward, "action_shape": 2}}
    pair = [main, {**create("ppo_offpolicy"), "reward_model": {"type": "icm"}}]
    with pytest.warns(CompatibilityNote, match="ppo_offpolicy runs as ppo, on policy"):
        checkpoint = serial_pipeline_reward_model_offpolicy(
            pair, seed=0, max_env_step=32, log_path=tmp_path, console=Console(quiet=True)
        )
    (row,) = history(checkpoint)
    assert row["rollout/rewards"] > 1
    with pytest.warns(CompatibilityNote, match="ppo_offpolicy runs as ppo, on policy"):
        assert serial_config(pair, on_policy=True) == serial_config(pair, on_policy=False)


def test_importing_pipelines_is_cheap() -> None:
    code = "import sys, rewardlab.pipelines; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def history(checkpoint: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (checkpoint.parents[1] / "metrics.jsonl").read_text().splitlines()]


def test_on_policy_training(tmp_path: Path) -> None:
    checkpoint = serial_pipeline_reward_model_onpolicy(
        (MAIN, create("ppo")), seed=0, max_env_step=64, log_path=tmp_path, console=Console(quiet=True)
    )

    assert checkpoint == tmp_path / "cartpole_rnd" / "checkpoints" / "global_step_2"
    rows = history(checkpoint)
    assert [row["env_steps"] for row in rows] == [32, 64]
    assert all(row["rollout/rewards"] > 1 for row in rows)  # CartPole's own is 1 a step; novelty comes on top
    assert "eval/return" in rows[-1]


def test_off_policy_training(tmp_path: Path) -> None:
    checkpoint = serial_pipeline_reward_model_offpolicy(
        [MAIN, create("dqn")], seed=0, max_env_step=64, log_path=tmp_path, console=Console(quiet=True)
    )

    assert checkpoint == tmp_path / "cartpole_rnd" / "checkpoints" / "global_step_2"
    rows = history(checkpoint)
    assert [row["env_steps"] for row in rows] == [32, 64]
    assert rows[-1]["train/loss"] >= 0


def test_the_call_in_the_docs_is_understood_without_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "serial_pipelines.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    asked: list[ExperimentConfig] = []
    monkeypatch.setattr(train_policy, "run", lambda cfg, **_: asked.append(cfg))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(code, {})

    (cfg,) = asked
    assert (cfg.runner.max_env_steps, cfg.algorithm.ppo.rollout_steps, cfg.algorithm.ppo.update_epochs) == (
        100_000,
        32,
        4,
    )
