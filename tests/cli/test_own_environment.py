"""The commands on environments of a user's own, from a file in the current directory."""

import json
import sys
from pathlib import Path

import gymnasium
import pytest

from rewardlab.cli import main
from rewardlab.data import read_episodes
from rewardlab.rewards import ResNetRewardModel

FILE = Path(__file__).parents[1] / "envs" / "own_envs.py"
CONFIG = """
env: {train: {id: "own_things_here:Rail", num_envs: 2, image_size: [3, 32, 32]}, eval: {num_envs: 2}}
runner: {max_epochs: 1, val_check_interval: 1, logger: {log_path: runs, experiment_name: run}}
algorithm: {name: ppo, ppo: {rollout_steps: 6, update_epochs: 1}, sac: {rollout_steps: 6, learning_starts: 0}}
actor: {global_batch_size: 6, model: {hidden_sizes: [8]}}
"""
CNN = ["actor.model.kind=cnn"]
PIXELS = [*CNN, "env.train.obs_mode=state+images", "env.train.cameras=[top]"]

pytestmark = pytest.mark.usefixtures("without_drawing", "here")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with the user's file and config; the file's module is found there and nowhere else."""
    (tmp_path / "own_things_here.py").write_text(FILE.read_text().replace("test-own/", "test-here/"))
    (tmp_path / "own.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_things_here", raising=False)
    monkeypatch.delitem(gymnasium.registry, "test-here/Rail-v0", raising=False)


def collect(name: str, *more: str) -> int:
    command = ["collect", "own.yaml", f"env.train.id=own_things_here:{name}", "--episodes", "2", "--out", "data"]
    return main([*command, "--policy", "own_things_here:Steady", *more])


@pytest.mark.parametrize(
    ("name", "more", "camera"),
    [
        ("test-here/Rail-v0", [], "base_camera"),
        ("Rail", ["env.train.cameras=[render]"], "render"),
        ("RowsFirst", [], "base_camera"),
        ("ColoursFirst", [], "base_camera"),
        ("Pixels", ["env.train.cameras=[top]"], "top"),
        ("Agentview", ["env.train.cameras=[agentview_image]"], "agentview_image"),
        ("Odd", [], "base_camera"),
        ("next_step", [], "base_camera"),
        ("disabled_pixels", ["env.train.cameras=[top]"], "top"),
    ],
)
def test_episodes_are_collected_with_pictures_and_labels(name: str, more: list[str], camera: str) -> None:
    assert collect(name, *more) == 0
    episodes = read_episodes("data")
    assert [episode.facts.cameras for episode in episodes] == [{camera: (32, 32)}] * 2
    assert all(episode.facts.success_at_end and not episode.load().columns["success"][0] for episode in episodes)
    frames = episodes[0].load().columns[f"observation.images.{camera}"]
    assert len(frames) == 7
    assert frames[-1].mean() < frames[0].mean()  # the true last frame, not the first one after a reset


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("Rail", []),
        ("RowsFirst", CNN),
        ("Goals", []),
        ("Pixels", [*PIXELS, "algorithm.name=sac"]),
        ("next_step", ["algorithm.name=sac"]),
        ("disabled_pixels", PIXELS),
        ("same_step_pixels", PIXELS),
    ],
)
def test_a_policy_is_trained_and_evaluated(name: str, overrides: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "own.yaml", f"env.train.id=own_things_here:{name}", *overrides]) == 0
    capsys.readouterr()
    command = ["evaluate", "runs/run", "--episodes", "2", "--trust-modules", "own_things_here"]
    assert main([*command, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["length"] == 6
    low, high = figures["success_at_end_interval"]
    assert 0 <= low <= figures["success_at_end"] <= high <= 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Pixels", "no camera 'base_camera': the environment has top. Name its cameras"),
        (
            "Blind",
            "pictures in its observations (state [2]), and its render_mode is None, where",
        ),
        ("Rial", "unknown environment of own_things_here 'Rial'. Did you mean 'Rail'?"),
    ],
)
def test_what_cannot_be_collected_from_says_what_there_is(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collect(name) == 2
    assert message in capsys.readouterr().err


def test_an_environment_that_reports_no_success_is_named_with_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    said = "infos have none of success, is_success, succeed, but won"
    assert collect("Silent") == 0
    assert f"{said}: every frame is labelled a failure" in capsys.readouterr().err
    ResNetRewardModel(arch="resnet10", image_size=(3, 32, 32), width=4, hidden_dim=8).save(Path("model"))
    learned = ["reward.use_reward_model=true", "reward.model.checkpoint_path=model", "reward.reward_threshold=0.5"]
    assert main(["run", "own.yaml", "env.train.id=own_things_here:Silent", *learned]) == 0
    assert f"{said}: the audit cannot compare" in capsys.readouterr().err
    assert main(["evaluate", "runs/run", "--episodes", "2", "--trust-modules", "own_things_here"]) == 0
    assert f"{said}, so that no share of successes is known" in capsys.readouterr().err


def test_intervals_are_printed_and_episodes_that_begin_in_success_warned_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "own.yaml", "env.train.id=own_things_here:Done"]) == 0
    assert "100.0% of the 2 evaluated episodes are a success at their reset" in capsys.readouterr().err
    assert main(["evaluate", "runs/run", "--episodes", "4", "--trust-modules", "own_things_here"]) == 0
    assert "  success once         100 %  [51.0, 100]\n" in capsys.readouterr().out


def test_the_traceback_of_a_users_error_is_the_users(capsys: pytest.CaptureFixture[str]) -> None:
    assert collect("Burning") == 1
    error = capsys.readouterr().err
    assert "own_things_here.py" in error
    assert "RuntimeError: motor on fire" in error
    assert "rewardlab/envs" not in error
