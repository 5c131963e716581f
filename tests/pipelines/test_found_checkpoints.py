"""Whatever path a run printed leads to its newest whole checkpoint: to continue, to evaluate, to score."""

import shutil
from pathlib import Path

import pytest
from policy_runs import SMALL, history, train
from test_training_faults import command, write_episodes

from rewardlab.cli import main
from rewardlab.errors import DataError
from rewardlab.pipelines.evaluate import evaluate
from rewardlab.rewards import load_reward_model
from rewardlab.run_state import find_checkpoint, load_state

pytestmark = pytest.mark.usefixtures("without_drawing")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("policy") / "logs" / "run"
    train(out, "runner.max_epochs=4")
    return out


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("classifier")
    assert main(command(write_episodes(top / "data", 6), top / "run", "runner.max_epochs=1")) == 0
    return top / "run"


@pytest.mark.parametrize("given", [".", "..", "checkpoints", "checkpoints/global_step_4", "report.html", "config.yaml"])
def test_paths_of_a_policy(policy: Path, given: str) -> None:
    (policy / "report.html").touch()
    assert find_checkpoint((policy / given).resolve(), of="policy").name == "global_step_4"


@pytest.mark.parametrize("given", [".", "checkpoints", "checkpoints/last", "checkpoints/best_model", "report.html"])
def test_paths_of_a_classifier(classifier: Path, given: str) -> None:
    (classifier / "report.html").touch()
    assert find_checkpoint((classifier / given).resolve(), of="classifier") == classifier / "checkpoints" / "last"


@pytest.mark.parametrize("given", [".", "checkpoints", "checkpoints/best_model", "report.html"])
def test_a_classifier_is_loaded_from_each_of_them(classifier: Path, given: str) -> None:
    (classifier / "report.html").touch()
    assert load_reward_model(classifier / given).metrics


@pytest.mark.parametrize("given", [".", "checkpoints", "checkpoints/best_model"])
def test_a_classifier_whose_writer_was_killed_between_two_renames(classifier: Path, tmp_path: Path, given: str) -> None:
    run = shutil.copytree(classifier, tmp_path / "run")
    for name in ("best_model", "last"):
        (run / "checkpoints" / name).rename(run / f"checkpoints/.{name}.previous")
    assert load_reward_model(run / given).metrics
    assert find_checkpoint(run, of="classifier").name == ".last.previous"


def test_the_state_of_a_classifiers_run_is_no_model(classifier: Path) -> None:
    with pytest.raises(DataError, match="the state of a training run, which continues it; its model is best_model"):
        load_reward_model(classifier / "checkpoints/last")


def test_a_run_goes_on_from_its_directory(policy: Path, tmp_path: Path) -> None:
    run = shutil.copytree(policy, tmp_path / "run")
    where = [f"runner.logger.log_path={tmp_path}", "runner.logger.experiment_name=run"]
    assert main(["run", "tabletop_ppo_mlp", *SMALL, *where, f"runner.resume_dir={run}", "runner.max_epochs=5"]) == 0
    assert [row["iteration"] for row in history(run)] == [1, 2, 3, 4, 5]


def test_a_classifier_goes_on_from_its_directory(classifier: Path, tmp_path: Path) -> None:
    run = shutil.copytree(classifier, tmp_path / "run")
    data = classifier.parent / "data"
    assert main(command(data, run, f"runner.resume_dir={run}", "runner.max_epochs=2")) == 0
    assert load_state(run / "checkpoints" / "last")[0]["progress"]["epoch"] == 2


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(policy: Path, tmp_path: Path) -> None:
    run = shutil.copytree(policy, tmp_path / "run")
    weights = run / "checkpoints" / "global_step_4" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.warns(UserWarning, match=r"global_step_4 is damaged .*; taking .*global_step_2"):
        assert find_checkpoint(run, of="policy").name == "global_step_2"
    shutil.rmtree(run / "checkpoints" / "global_step_2")
    with pytest.raises(DataError, match=r"has no whole checkpoint: .*global_step_4 is damaged"):
        find_checkpoint(run, of="policy")


def test_checkpoints_elsewhere_are_found_and_evaluated(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere" / "of mine"
    newest = train(run, "runner.max_epochs=1", f"runner.checkpoint_dir='{elsewhere}'")
    for path in (run, newest):
        assert evaluate(path, episodes=2, seed=0, device="cpu")[0] == elsewhere / "global_step_1"


def test_what_was_found_instead_is_named(policy: Path, classifier: Path, tmp_path: Path) -> None:
    (tmp_path / "episodes").mkdir()
    for path, of, words in (
        (classifier, "policy", f"no checkpoint of a policy's run; found {classifier}/checkpoints/last"),
        (policy, "classifier", f"no checkpoint of a classifier's run; found {policy}/checkpoints/global_step_4"),
        (tmp_path, "policy", "found episodes; expected checkpoints/last"),
        (tmp_path / "nowhere", "policy", "there is no such directory"),
    ):
        with pytest.raises(DataError) as error:
            find_checkpoint(path, of=of)  # type: ignore[arg-type]
        assert words in str(error.value)
