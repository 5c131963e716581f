"""Runs whose learner dies, without Ray: they go back to their last checkpoint, or stop with the command to go on."""

import shlex
from pathlib import Path

import pytest
from policy_runs import SMALL, history, same, train, weights, without_times

from rewardlab.cli import main
from rewardlab.config import load_config
from rewardlab.pipelines.policy_training import PolicyTraining
from rewardlab.pipelines.stopped_run import stopped_run
from rewardlab.workers import WorkerDied

pytestmark = pytest.mark.usefixtures("without_drawing")


class Dying:
    """Lets a worker die when `completed` iterations are complete, as many `times`."""

    def __init__(self, worker: str, completed: int, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = times
        iterate = PolicyTraining.iterate

        def dying(training: PolicyTraining) -> dict[str, float]:
            if training.completed == completed and self.times:
                self.times -= 1
                dead = training.actor if worker == "learner" else training.workers.envs[0]
                raise WorkerDied(f"{dead.name} died during update (process 7)", dead)
            return iterate(training)

        monkeypatch.setattr(PolicyTraining, "iterate", dying)


@pytest.mark.parametrize(("completed", "dropped"), [(1, 1), (3, 1)], ids=["before the first checkpoint", "after it"])
def test_a_run_whose_learner_dies_goes_back_and_learns_the_same(
    completed: int, dropped: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unbroken = train(tmp_path / "unbroken", "runner.max_epochs=4")
    Dying("learner", completed, 2, monkeypatch)
    broken = train(tmp_path / "broken", "runner.max_epochs=4")

    assert same(weights(unbroken), weights(broken))
    rows = history(tmp_path / "broken")
    assert rows[completed - dropped].pop("went_back/actor_0") == dropped
    assert without_times(rows) == without_times(history(tmp_path / "unbroken"))
    assert "ActorGroup[0] died during update (process 7); the run goes back to " in capsys.readouterr().out


@pytest.mark.parametrize(("worker", "checkpoint"), [("learner", "global_step_2"), ("env", "global_step_3")])
def test_a_run_that_cannot_go_on_prints_the_command_that_continues_it(
    worker: str, checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The learner, which dies again and again; and another worker, while the learner lives and its state is saved."""
    out = tmp_path / "run"
    Dying(worker, 3, 3 if worker == "learner" else 1, monkeypatch)
    where = [f"runner.logger.log_path={tmp_path}", "runner.logger.experiment_name=run"]
    assert main(["run", "tabletop_ppo_mlp", *SMALL, *where, "runner.max_epochs=4"]) == 1

    words, _, command = capsys.readouterr().err.strip().partition(". The run continues with: ")
    assert words.startswith("error: ")
    assert ("3 times" in words) == (worker == "learner")
    assert command == f"rewardlab run {out}/config.yaml runner.resume_dir={out}/checkpoints/{checkpoint}"
    assert main(shlex.split(command)[1:]) == 0
    assert [row["iteration"] for row in history(out)] == [1, 2, 3, 4]


def test_the_command_names_what_exists(tmp_path: Path) -> None:
    out = tmp_path / "a run, at last"
    (checkpoint := out / "checkpoints" / "global_step_2").mkdir(parents=True)

    def command(checkpoint: Path | None) -> list[str]:
        return shlex.split(str(stopped_run("it died", out, checkpoint)).partition("with: ")[2])

    assert command(None) == ["rewardlab", "run", f"{out}/config.yaml"]
    assert load_config("tabletop_ppo_mlp", command(checkpoint)[3:]).runner.resume_dir == str(checkpoint)
