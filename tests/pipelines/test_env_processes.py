"""Collecting, training and evaluating with environments in other processes, one of which dies."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from policy_runs import history, same, weights, without_times
from rich.console import Console

from rewardlab.config import ExperimentConfig, load_config
from rewardlab.data import read_episodes
from rewardlab.errors import ProcessDied, RewardlabError
from rewardlab.pipelines import collect, train_policy
from rewardlab.pipelines.evaluate import evaluate
from rewardlab.rl.evaluation import Evaluation

ID = "mortal_env:Mortal-v0"
POLICY = [
    f"env.train.id={ID}",
    "env.train.num_envs=4",
    "env.eval.num_envs=2",
    "runner.eval_episodes=5",
    "runner.max_epochs=3",
    "runner.val_check_interval=2",
    "runner.save_interval=2",
    "runner.stop_at_success=null",
    "algorithm.ppo.rollout_steps=12",
    "algorithm.ppo.update_epochs=1",
    "actor.model.hidden_sizes=[8]",
    "actor.global_batch_size=24",
]
DEATH = rf"copies (0, 2|1, 3) of '{ID}' are lost, in step\(\): process \d+ ended with exit status 9; they were"
pytestmark = pytest.mark.usefixtures("without_drawing")


def train(out: Path, *overrides: str) -> Path:
    where = [f"runner.logger.log_path={out.parent}", f"runner.logger.experiment_name={out.name}"]
    return train_policy.run(load_config("tabletop_ppo_mlp", [*POLICY, *where, *overrides]), console=Console(quiet=True))


def test_a_run_has_the_same_numbers_in_any_number_of_processes(tmp_path: Path) -> None:
    ones = [train(tmp_path / f"run_{count}", f"env.train.processes={count}") for count in (1, 2)]
    assert same(*map(weights, ones))
    assert without_times(history(tmp_path / "run_1")) == without_times(history(tmp_path / "run_2"))
    figures = [
        evaluate(tmp_path / run, episodes=7, seed=3, trust_modules=["mortal_env"])[1] for run in ("run_1", "run_2")
    ]
    assert figures[0] == figures[1]


def test_a_rollout_is_collected_again_when_a_process_dies(tmp_path: Path) -> None:
    mortal = [f"env.train.options={{marker: {tmp_path / 'died'}}}", "env.eval.options={marker: ''}"]
    with pytest.warns(RuntimeWarning, match=f"{DEATH}.*; the rollout is collected again"):
        train(tmp_path / "run", "env.train.processes=2", "env.eval.processes=1", *mortal)
    rows = history(tmp_path / "run")
    assert [row.get("replaced/env_process", 0) for row in rows] == [0, 1, 0]
    assert [row["env_steps"] for row in rows] == [48, 96, 144]


def test_a_run_whose_processes_die_again_and_again_stops_with_the_command_that_continues_it(tmp_path: Path) -> None:
    always = ["env.train.options={always: true}", "env.eval.options={always: false}", "env.eval.processes=1"]
    with (
        pytest.warns(RuntimeWarning, match="the rollout is collected again"),
        pytest.raises(RewardlabError, match=r"less than 60 s of work ago, too.*\. The run continues with: .*step_2"),
    ):
        train(tmp_path / "run", "env.train.processes=2", *always)


def test_collecting_goes_on_when_a_process_dies(tmp_path: Path) -> None:
    cfg = collection(tmp_path, "env.train.processes=2", f"env.train.options={{marker: {tmp_path / 'died'}}}")
    with pytest.warns(RuntimeWarning, match=f"{DEATH}.*; all running episodes begin again"):
        collect.run(cfg, console=Console(quiet=True))
    episodes = [stored.load() for stored in read_episodes(tmp_path / "episodes")]
    assert len(episodes) == 20
    for episode in episodes:  # whole ones
        terminated = episode.columns["terminated"]
        assert len(terminated) <= 7
        assert np.flatnonzero(terminated).tolist() == [len(terminated) - 1]


def test_collecting_ends_when_processes_die_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = collection(tmp_path, "env.train.processes=1")
    monkeypatch.setattr("mortal_env.Mortal.step", die)
    with (
        pytest.warns(RuntimeWarning, match="they are gone; all running episodes begin again") as warned,
        pytest.raises(ProcessDied, match="gone"),
    ):
        collect.run(cfg, console=Console(quiet=True))
    assert len(warned) == collect.LOSSES - 1


def die(*_: Any) -> None:
    raise ProcessDied("they are gone")


def collection(place: Path, *overrides: str) -> ExperimentConfig:
    wanted = ["data.collection.episodes=20", f"data.collection.save_dir={place / 'episodes'}"]
    common = [f"env.train.id={ID}", "env.train.num_envs=4", "env.train.cameras=[]", "data.collection.policy=random"]
    return load_config("tabletop_pickcube", [*wanted, *common, *overrides])


class Wanderer(torch.nn.Module):
    def act(self, observation: Any, *_: Any, **__: Any) -> dict[str, torch.Tensor]:
        return {"action": torch.full((len(observation), 1), 0.3)}


def test_an_evaluation_begins_again_when_a_process_dies(tmp_path: Path) -> None:
    """Its episodes follow from the seed, so that the figures are those of an evaluation in which none died."""
    options = [[], ["env.eval.processes=2", f"env.eval.options={{marker: {tmp_path / 'died'}}}"]]
    cfgs = [load_config("tabletop_ppo_mlp", [*POLICY, "env.eval.num_envs=4", *more]).env.eval for more in options]
    expected, dying = (Evaluation(cfg, seed=1, episodes=18) for cfg in cfgs)
    with pytest.warns(RuntimeWarning, match=f"{DEATH}.*; the evaluation begins again"):
        found = dying.run(Wanderer())
    assert found == expected.run(Wanderer())
