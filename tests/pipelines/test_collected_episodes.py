"""Runs that collect episodes: resumed, begun again, on another course, with targets. None is lost, none is doubled."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from policy_runs import SAC, train

from rewardlab.data import read_episodes
from rewardlab.data.writer import EpisodeWriter
from rewardlab.pipelines.policy_training import PolicyTraining
from rewardlab.run_state import load_state

pytestmark = pytest.mark.usefixtures("without_drawing")


class Killed(BaseException):
    """Stands for the end of the process."""


def collect(out: Path, *more: str, stop: int | None = None, epochs: int = 4, resume: int | None = None) -> None:
    """Train in `out` and collect in `out`_data; with `stop`, only until that iteration, which is not saved."""
    settings = ["data.collection.enabled=true", f"data.collection.save_dir={out}_data", f"runner.max_epochs={epochs}"]
    if resume is not None:
        settings.append(f"runner.resume_dir={out}/checkpoints/global_step_{resume}")
    save, training = PolicyTraining.save_if_due, [*settings, *more]

    def save_or_stop(self: Any, log: Any) -> None:
        if self.progress.iteration == stop:
            raise Killed
        save(self, log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PolicyTraining, "save_if_due", save_or_stop)
        if stop is None:
            train(out, *training)
        else:
            with pytest.raises(Killed):
                train(out, *training)


def contents(out: Path) -> Counter[str]:
    return Counter(episode.digest for episode in read_episodes(f"{out}_data"))


@pytest.mark.parametrize(
    "settings",
    [
        [],
        SAC,
        ["data.collection.format=pickle"],
        ["data.collection.format=npy"],
        ["cluster.workers.env=2"],
        ["data.collection.frames=last:2"],
    ],
    ids=["ppo", "sac", "pickle", "npy", "two workers", "last frames"],
)
def test_a_resumed_run_writes_every_episode_once(tmp_path: Path, settings: list[str]) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    collect(whole, *settings)
    collect(parts, *settings, stop=3)
    before = contents(parts)
    collect(parts, *settings, resume=2)
    assert before.total() > 0
    assert contents(parts) == contents(whole)
    numbers = [episode.origin.identity for episode in read_episodes(f"{parts}_data") if episode.origin]
    assert len(set(numbers)) == contents(whole).total()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_was_stopped_before_its_first_checkpoint_begins_again(tmp_path: Path, workers: int) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    collect(whole, f"cluster.workers.env={workers}")
    for stop in (1, 1, None):
        collect(parts, f"cluster.workers.env={workers}", stop=stop)
    assert contents(parts) == contents(whole)
    states = [load_state(run / "checkpoints" / "global_step_4")[0]["collection"] for run in (whole, parts)]
    assert states[0] == states[1]


@pytest.mark.parametrize(
    "plan", [["target_failure=20", "target_success=1"], ["episodes=20"]], ids=["targets", "episodes"]
)
@pytest.mark.parametrize("stops", [[(3, None)], [(1, None), (3, None)]], ids=["resumed", "begun again and resumed"])
def test_targets_count_an_episode_once(tmp_path: Path, plan: list[str], stops: list[tuple[int, int | None]]) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    settings = [f"data.collection.{item}" for item in plan]
    collect(whole, *settings)
    for stop, resume in stops:
        collect(parts, *settings, stop=stop, resume=resume)
    collect(parts, *settings, resume=2)
    assert contents(parts) == contents(whole)
    assert contents(parts).total() == 20


def test_a_resumed_run_on_another_course_loses_nothing(tmp_path: Path) -> None:
    collect(tmp_path / "run", stop=3)
    before = contents(tmp_path / "run")
    collect(tmp_path / "run", "seed=1", resume=2)
    after = contents(tmp_path / "run")
    assert before <= after
    assert after.total() == 3 * 16 + 2 * 16
    runs = {episode.origin.run for episode in read_episodes(tmp_path / "run_data") if episode.origin}
    (run,) = runs  # the name is made at the first start
    assert run.startswith("ppo tabletop/PickCube seed 0 config ")


def test_a_kill_while_an_episode_is_written_leads_to_neither_a_copy_nor_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    collect(whole)
    write, written = EpisodeWriter._write, []

    def stop_writing(self: EpisodeWriter, episode: Any) -> Path:
        written.append(episode)
        if len(written) > 41:  # the rest of the process's life: nothing reaches the disk any more
            return Path("nowhere")
        return write(self, episode)

    monkeypatch.setattr(EpisodeWriter, "_write", stop_writing)
    collect(parts, stop=3)
    monkeypatch.undo()
    assert contents(parts).total() == 41
    collect(parts, resume=2)
    assert contents(parts) == contents(whole)
