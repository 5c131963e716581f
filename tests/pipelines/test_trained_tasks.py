"""A classifier knows the tasks of the episodes that trained it, and whoever has it judge another task is told so."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from policy_runs import learned, train

from rewardlab.cli import main
from rewardlab.errors import ConfigError
from rewardlab.rewards import BinaryRewardClassifier, load_success_classifier
from rewardlab.rewards.trained_tasks import other_tasks

pytestmark = pytest.mark.usefixtures("without_drawing")

PICKCUBE, PEGS = "tabletop/PickCube", "tabletop/PegInsertion"
MOVED_CAMERA = "env.train.options.randomize.camera=true"
ONE_EPOCH = ["runner.max_epochs=1", "env.train.num_envs=2", "algorithm.ppo.rollout_steps=5"]


def classifier(path: Path, *tasks: str) -> Path:
    torch.manual_seed(0)
    model = BinaryRewardClassifier(image_size=(3, 32, 32), width=4, hidden_dim=8, num_spatial_blocks=2)
    model.tasks = tasks or None
    return model.save(path)


def warned(out: Path, *overrides: str) -> list[str]:
    """The warnings about classifiers in a run that ends after them, at its first error: nothing has begun."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with pytest.raises(ConfigError, match="NoSuchTask-v7"):
            train(out, "env.train.id=NoSuchTask-v7", *overrides)
    return [str(warning.message) for warning in found if "trained on frames" in str(warning.message)]


def test_a_checkpoint_keeps_the_tasks_of_its_episodes(tmp_path: Path) -> None:
    """Also the co-trained one that a run saves, and one .pt file."""
    data, size = tmp_path / "data", "env.train.image_size=[3,32,32]"
    for name, seed, *more in (("plain", 0), ("moved", 1, MOVED_CAMERA)):
        where = ["--out", str(data / str(name)), "--seed", str(seed), "--episodes", "6", "--policy", "noisy_expert"]
        assert main(["collect", "tabletop_pickcube", *where, size, *map(str, more)]) == 0
    settings = ["reward.model.model_type=binary_classifier", "reward.model.width=4", "reward.model.hidden_dim=8"]
    settings += ["reward.model.num_spatial_blocks=2", "runner.max_epochs=1", f"runner.logger.log_path={tmp_path / 'c'}"]
    settings += [f"runner.best_model_file={tmp_path / 'best.pt'}", "data.num_samples_per_episode=8"]
    assert main(["train-reward", "--data", str(data), *settings]) == 0
    best, tasks = tmp_path / "c" / "checkpoints" / "best_model", [PICKCUBE, f"{PICKCUBE} [randomize.camera=true]"]
    assert json.loads((best / "config.json").read_text())["tasks"] == tasks
    train(tmp_path / "run", *learned(best, "reward.cotrain=true"), *ONE_EPOCH)
    for path in (best, tmp_path / "best.pt", tmp_path / "run" / "reward_models" / "last" / "binary_classifier"):
        assert load_success_classifier(path).tasks == tuple(tasks)


def test_a_checkpoint_without_tasks_is_read_and_warns_of_nothing(tmp_path: Path) -> None:
    path = classifier(tmp_path / "older")
    config = json.loads((path / "config.json").read_text())
    assert config.pop("tasks") is None
    for broken in ({}, {"tasks": None}, {"tasks": []}, {"tasks": 7}, {"tasks": "toy"}, {"tasks": [1]}):
        (path / "config.json").write_text(json.dumps({**config, **broken}))
        assert load_success_classifier(path).tasks is None
        assert warned(tmp_path / "run", *learned(path)) == []


def test_a_run_of_another_task_is_warned_of_before_it_begins(tmp_path: Path) -> None:
    path = classifier(tmp_path / "pegs", PEGS, f"{PEGS} [randomize.camera=true]")
    (warning,) = warned(tmp_path / "run", *learned(path))
    assert f"{path} was trained on frames of {PEGS}, {PEGS} [randomize.camera=true], but" in warning
    assert "the task of this run is NoSuchTask-v7. Its threshold and its figures" in warning
    assert warned(tmp_path / "run") == []  # without a learned reward
    model = f"{{checkpoint_path: {path}}}"
    both = f"[{{name: a, checkpoint_path: {path}}}, {{name: b, checkpoint_path: {path}}}, {{model_type: rnd}}]"
    for several in (f"[{model}, {{model_type: rnd}}]", both):
        assert len(warned(tmp_path / "run", "reward.use_reward_model=true", f"reward.model={several}")) == 1


def test_a_run_with_a_classifier_of_another_camera_goes_on(tmp_path: Path) -> None:
    path = classifier(tmp_path / "moved", f"{PICKCUBE} [randomize.camera=true]")
    with pytest.warns(
        UserWarning, match=r"trained on frames of .* \[randomize.camera=true\], but the task of this run"
    ):
        train(tmp_path / "run", *learned(path), *ONE_EPOCH)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        train(tmp_path / "same", *learned(path), *ONE_EPOCH, MOVED_CAMERA)


@pytest.mark.parametrize(
    ("trained", "task", "differs"),
    [
        (["A-v1"], "A-v1", False),
        (["A-v1"], "B-v1", True),
        (["B-v1", "A-v1"], "A-v1", False),
        (["A-v1"], "A-v1 [action_repeat=2]", False),
        (["A-v1 [action_repeat=5, control_mode=pd_joint_pos]"], "A-v1 [control_mode=pd_ee_delta_pos]", False),
        (["A-v1 [camera.eye=[0.5, 0, 1], motion_noise=0.1]"], "A-v1 [action_repeat=2, camera.eye=[0.5, 0, 1]]", False),
        (["A-v1 [camera.eye=[0.5, 0, 1]]"], "A-v1 [camera.eye=[0.5, 0, 2]]", True),
        (["A-v1 [camera=task]"], "A-v1", True),
        (["A-v1"], "A-v1 [sim_backend=gpu]", True),
        (["A-v1 [wrappers=[m:A, m:B [n=2]]]"], "A-v1 [action_repeat=2, wrappers=[m:A, m:B [n=2]]]", False),
        (["A-v1 [wrappers=[m:A]]"], "A-v1 [wrappers=[m:B]]", True),
        (["B-v1", "unknown"], "A-v1", False),  # pickles store no task
        (["B-v1"], "unknown", False),
        (None, "A-v1", False),
    ],
)
def test_tasks_differ_in_what_may_change_pictures(trained: list[str] | None, task: str, differs: bool) -> None:
    assert other_tasks(None if trained is None else tuple(trained), [task]) == [task] * differs


def test_scoring_episodes_of_another_task_is_warned_of_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], write_toy_episodes: Callable[..., Path]
) -> None:
    data = write_toy_episodes(tmp_path / "toy", count=4)
    for tasks, expected in ((["toy"], 0), ([], 0), ([PICKCUBE], 1)):
        path = classifier(tmp_path / f"model {expected}{len(tasks)}", *tasks)
        assert main(["score", str(path), str(data)]) == 0
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning:")]
        assert len(lines) == expected
        assert all(f"trained on frames of {PICKCUBE}, but some of these episodes show toy." in line for line in lines)
