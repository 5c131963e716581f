"""Every command of the older documentation runs as printed (but for the name of the package).

Those with many overrides are in tests/test_examples.py too, through their scripts and a Python of their own; those for
robots are in test_printed_robot_commands.py.
"""

import os
import pickle
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from documented_lines import RunLine, words_of

from rewardlab import train_reward_model
from rewardlab.data import EpisodeWriter, read_episodes, summarize
from rewardlab.models.resnet import ResNet
from rewardlab.rewards import load_reward_model

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


RUN = "bash examples/embodiment/run_embodiment.sh"
TRAIN_ON_DATA = "bash examples/reward/run_reward_training.sh --data /path/to/collected_data"
IN_THE_FOLDER = "./run_embodiment.sh maniskill_train_resnet_reward"
COLLECT_FOR_DIRECTORIES = """python examples/embodiment/train_embodied_agent.py \\
    --config-path examples/embodiment/config/ \\
    --config-name maniskill_ppo_cnn \\
    reward.collect_data=True \\
    reward.use_reward_model=False"""
TRAIN_ON_DIRECTORIES = """python -m rewardlab.models.reward_model.train_reward_model \\
    --positive-dir ./reward_data/positive \\
    --negative-dir ./reward_data/negative \\
    --output-checkpoint ./checkpoints/reward_model.pt \\
    --pretrained-encoder-path ./resnet10_pretrained.pt \\
    --backbone resnet10 \\
    --image-key base_camera \\
    --image-size 3 64 64 \\
    --batch-size 128 \\
    --epochs 30 \\
    --lr 1e-4 \\
    --hidden-dim 256 \\
    --num-spatial-blocks 8 \\
    --visualize-positive \\
    --vis-output-dir ./positive_samples_vis"""
SHORTER = """python -m rewardlab.models.reward_model.train_reward_model \\
    --positive-dir ./reward_data/positive \\
    --negative-dir ./reward_data/negative \\
    --output-checkpoint ./checkpoints/reward_model.pt \\
    --pretrained-encoder-path ./resnet10_pretrained.pt \\
    --image-key base_camera \\
    --image-size 3 64 64 \\
    --batch-size 128 \\
    --epochs 30 \\
    --hidden-dim 256 \\
    --num-spatial-blocks 8"""
USE_THAT_MODEL = """python examples/embodiment/train_embodied_agent.py \\
    --config-path examples/embodiment/config/ \\
    --config-name maniskill_ppo_cnn \\
    reward.use_reward_model=True \\
    reward.collect_data=False \\
    reward.reward_model.checkpoint_path="./checkpoints/reward_model.pt\""""
PROCESS = "python examples/embodiment/process_realworld_data.py /path/to/your/input_data.pkl"

# Two iterations, each of an episode of three steps in two environments.
TWO_STEPS = [
    *("+machine=cpu2", "env.train.num_envs=2", "env.eval.num_envs=1", "env.train.max_episode_steps=3"),
    *("runner.max_epochs=2", "runner.save_interval=1", "algorithm.ppo.rollout_steps=3"),
    *("algorithm.ppo.update_epochs=1", "actor.global_batch_size=6", "actor.model.hidden_sizes=[8]"),
    "reward.min_recall=0",  # of classifiers that were trained for two steps
]
SMALL_FRAMES = "env.train.image_size=[3,32,32]"
SMALL_MODEL = ["+machine=cpu2", "reward.model.width=4", "runner.max_steps=2"]

pytestmark = pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")


@pytest.fixture(params=["tabletop", "maniskill"])
def simulator(request: pytest.FixtureRequest, elsewhere: Path) -> str:
    """The commands are those of ManiSkill. Without it, the config that all others build on is edited, as users do."""
    file = elsewhere / "examples" / "embodiment" / "config" / "maniskill_ppo_mlp.yaml"
    config = yaml.safe_load(file.read_text())
    train, on_two_cores = config["env"]["train"], config["machines"]["cpu2"]["env"]["train"]
    if request.param == "maniskill":
        pytest.importorskip("mani_skill", reason="ManiSkill is not installed: make maniskill")
        train["processes"] = 1  # starting one takes longer than all its steps here
    else:
        train["id"] = "tabletop/PickCube"
        del train["options"], on_two_cores["options"]
    file.write_text(yaml.safe_dump(config))
    return str(request.param)


@pytest.fixture
def add_successes(write_toy_episodes: Callable[..., Path], tmp_path: Path) -> Callable[[Path, str, int], None]:
    """Adds episodes with successes to a directory: two iterations of a policy make none."""

    def add(directory: Path, format: str, size: int) -> None:
        toys = write_toy_episodes(tmp_path / "toys" / directory.name, count=4, length=6, size=size)
        writer = EpisodeWriter(directory, format, durable=False)
        for episode in read_episodes(toys):
            writer.write(episode.load())

    return add


@pytest.mark.parametrize("name", ["maniskill_ppo_mlp", "maniskill_ppo_cnn"])
def test_without_a_gpu_the_word_is_said_at_once(
    name: str, run_line: RunLine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_line(f"{RUN} {name}") == 2
    assert capsys.readouterr().err.strip() == (
        "error: cluster.device: found cuda. This config is sized for a GPU, and there is none here; add +machine=cpu2"
    )


@pytest.mark.usefixtures("without_drawing", "simulator")
def test_warm_up_with_collection_then_a_classifier_then_its_reward(
    run_line: RunLine, elsewhere: Path, add_successes: Callable[..., None]
) -> None:
    assert run_line(f"{RUN} maniskill_ppo_mlp_collect", *TWO_STEPS, SMALL_FRAMES) == 0
    data = elsewhere / "collected_data"
    assert summarize(data).episodes == 4
    add_successes(data, "safetensors", 32)

    assert run_line(TRAIN_ON_DATA.replace("/path/to/", ""), *SMALL_MODEL[1:]) == 0
    model = "runs/reward_model/checkpoints/best_model"
    load_reward_model(elsewhere / model)

    warmed_up = "runner.resume_dir=logs/maniskill_ppo_mlp_collect/checkpoints/global_step_2"
    more = [warmed_up, f"reward.model.checkpoint_path={model}", "reward.model.debug_save_dir=logs/debug_images"]
    assert (
        run_line(f"{RUN} maniskill_ppo_mlp_resnet_reward", *TWO_STEPS, SMALL_FRAMES, "runner.max_epochs=3", *more) == 0
    )
    assert (elsewhere / "logs/maniskill_ppo_mlp_resnet_reward/checkpoints/global_step_3").is_dir()
    scored = [path.name for path in (elsewhere / "logs/debug_images").glob("resnet_*/*.png")]
    assert len(scored) == 6  # of the one iteration on this reward
    assert all(re.fullmatch(r"\d{6}_prob0\.\d{4}\.png", name) for name in scored)


@pytest.mark.usefixtures("without_drawing", "simulator")
def test_pickles_beside_the_script_then_a_classifier_then_its_reward(
    run_line: RunLine, elsewhere: Path, add_successes: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = elsewhere / "examples" / "embodiment"
    assert run_line(f"{RUN} maniskill_collect_reward_data", *TWO_STEPS, SMALL_FRAMES) == 0
    assert (folder / "data/failure/episode_000003.pkl").is_file()
    add_successes(folder / "data", "pickle", 32)

    assert run_line(IN_THE_FOLDER, *SMALL_MODEL, cwd=folder) == 0
    checkpoints = elsewhere / "logs" / "reward_checkpoints"
    frames = torch.zeros(1, 32, 32, 3, dtype=torch.uint8)
    models: list[Any] = [load_reward_model(checkpoints / name) for name in ("best_model", "reward_model_best.pt")]
    assert models[0].probabilities(frames).equal(models[1].probabilities(frames))

    in_another_place = [*SMALL_MODEL, "runner.checkpoint_dir=other"]
    assert (
        run_line(
            IN_THE_FOLDER, *in_another_place, f"runner.best_model_file={checkpoints}/reward_model_best.pt", cwd=folder
        )
        == 2
    )
    assert "reward_model_best.pt exists already, and is not replaced" in capsys.readouterr().err

    assert run_line(f"{RUN} maniskill_ppo_mlp_resnet_reward", *TWO_STEPS, SMALL_FRAMES) == 0
    other = "reward.resnet.checkpoint_path=logs/reward_checkpoints/best_model.pt"
    assert (
        run_line(
            f"{RUN} maniskill_ppo_mlp_resnet_reward", *TWO_STEPS, SMALL_FRAMES, other, "runner.logger.log_path=other"
        )
        == 0
    )
    metrics = [elsewhere / place / "maniskill_ppo_mlp_resnet_reward/metrics.jsonl" for place in ("logs", "other")]
    assert all('"rollout/model_rewards"' in file.read_text() for file in metrics)


@pytest.mark.usefixtures("without_drawing", "simulator")
def test_trajectories_in_two_directories_then_a_classifier_then_its_reward(
    run_line: RunLine, elsewhere: Path, add_successes: Callable[..., None]
) -> None:
    assert run_line(f"{RUN} maniskill_ppo_cnn", *TWO_STEPS) == 0
    data = elsewhere / "reward_data"
    assert {path.name for path in data.glob("negative/*.npy")} == {f"{number:06d}.npy" for number in range(4)}
    assert run_line(COLLECT_FOR_DIRECTORIES, *TWO_STEPS, "seed=1", "runner.logger.log_path=again") == 0
    assert len(list(data.glob("negative/*.npy"))) == 8
    add_successes(data, "npy", 64)

    torch.save(ResNet("resnet10").state_dict(), elsewhere / "resnet10_pretrained.pt")
    assert run_line(TRAIN_ON_DIRECTORIES, "--epochs", "1") == 0
    assert load_reward_model("checkpoints/reward_model.pt").image_size == (3, 64, 64)  # type: ignore[attr-defined]
    pictures = sorted(path.name for path in (elsewhere / "positive_samples_vis").glob("*.png"))
    assert pictures[:2] == ["positive_000000_frame004.png", "positive_000000_frame005.png"]

    assert run_line(USE_THAT_MODEL, *TWO_STEPS, "runner.logger.log_path=learned") == 0
    assert '"rollout/model_rewards"' in (elsewhere / "learned/maniskill_ppo_cnn/metrics.jsonl").read_text()
    assert len(list(data.glob("negative/*.npy"))) == 10  # none of the last run


def test_the_arguments_of_the_shorter_command() -> None:
    fewer = vars(train_reward_model._parser().parse_args(words_of(SHORTER)[3:]))
    assert (fewer["backbone"], fewer["lr"], fewer["visualize_positive"]) == ("resnet10", 1e-4, False)


@pytest.mark.parametrize(
    "command", ["python examples/embodiment/train_reward_model.py", "bash examples/embodiment/train_reward_model.sh"]
)
def test_the_scripts_of_that_module_take_the_same_arguments(
    command: str, run_line: RunLine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_line(command, "--help") == 0
    assert "--positive-dir" in capsys.readouterr().out


def test_a_recording_of_a_robot(elsewhere: Path, run_line: RunLine) -> None:
    obs = {"main_images": torch.rand(16, 16, 3), "states": torch.zeros(2)}
    step: dict[str, Any] = {"transitions": {"obs": obs, "next_obs": obs}, "action": torch.ones(6)}
    ends = [{"rewards": torch.ones(1), "terminations": torch.tensor([number % 5 == 4])} for number in range(10)]
    (elsewhere / "logs").mkdir()
    (elsewhere / "logs" / "data.pkl").write_bytes(pickle.dumps([step | end for end in ends]))
    assert run_line(PROCESS.replace("/path/to/your/input_data.pkl", "logs/data.pkl")) == 0
    summary = summarize(elsewhere / "logs" / "collected_data")
    assert (summary.success_episodes, summary.failure_episodes, summary.success_frames) == (2, 0, 10)


def test_scripts_have_their_run_bit() -> None:
    for script in EXAMPLES.rglob("*.sh"):
        assert os.access(script, os.X_OK) == (script.name != "python.sh"), script
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-s", "examples"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        modes = {line.split()[3]: line.split()[0] for line in listed.stdout.splitlines() if line.endswith(".sh")}
        assert {name for name, mode in modes.items() if mode != "100755"} == {"examples/python.sh"}
