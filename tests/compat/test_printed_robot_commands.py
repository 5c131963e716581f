"""The commands of the older documentation for robots run as printed, against a simulated robot.

Only its address is set.

Words are added where time demands it: faster control, small pictures, few steps.
"""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented_lines import RunLine

from rewardlab.cli import main
from rewardlab.config import config_from_mapping, load_config
from rewardlab.data import summarize
from rewardlab.envs.robot_sim.server import SimOptions, SimServer
from rewardlab.rewards import load_reward_model

BLOCK = Path(__file__).parent / "blocks" / "realworld_collect.yaml"
PAGE = Path(__file__).parents[2] / "docs" / "robot_data.md"
SPEED = 20
COLLECT = "bash examples/embodiment/collect_data.sh"
PROCESS = "python examples/embodiment/process_realworld_data.py /path/to/your/input_data.pkl"
TRAIN = """bash examples/reward/run_reward_training.sh \\
            --data /path/to/collected_data \\
            data.num_samples_per_episode=0 \\
            data.fail_success_ratio=3.0 \\
            actor.global_batch_size=32 \\
            actor.micro_batch_size=16 \\
            runner.max_epochs=100 \\
            runner.val_check_interval=10 \\
            runner.save_interval=10 \\
            runner.early_stop.patience=10 \\
            data.debug_save_dir="logs/training_data_debug_realworld" \\
            runner.logger.log_path="logs/reward_model_realworld\""""
RUN = "bash examples/embodiment/run_realworld_async.sh realworld_peginsertion_rlpd_cnn_async"

FAST = [f"env.train.options.control_hz={10 * SPEED}", "env.train.image_size=[3,32,32]", "runner.page.port=0"]
SMALL_MODEL = ["reward.model.width=4", "reward.model.hidden_dim=8", "runner.max_steps=4"]
FEW_STEPS = [
    *("runner.max_env_steps=20", "algorithm.sac.learning_starts=0", "algorithm.sac.rollout_steps=10"),
    *("actor.global_batch_size=8", "actor.model.hidden_sizes=[8]", "algorithm.sac.utd_ratio=0.1"),
    *("runner.eval_episodes=1", "env.train.max_episode_steps=8", "reward.min_recall=0"),
]

pytestmark = pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")


@pytest.fixture
def address() -> Iterator[str]:
    server = SimServer(SimOptions(port=0, speed=SPEED, image_size=32))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server.address
    server.shutdown()
    server.close()


def test_the_shipped_config_has_the_printed_block() -> None:
    """Users edit the keys where the documentation says that they are."""
    printed: dict[str, Any] = yaml.safe_load(BLOCK.read_text())
    shipped = yaml.safe_load(
        (Path(__file__).parents[2] / "examples/embodiment/config/realworld_collect_data.yaml").read_text()
    )
    for block, keys in printed.items():
        assert {key: shipped[block][key] for key in keys} == keys
    cfg = load_config("realworld_collect_data", check_files=False)
    assert cfg.data.collection.episodes == 20
    assert cfg.env.train.success_hold_steps == 20
    assert cfg.env.train.target_ee_pose == (0.5, 0.0, 0.1, -3.14, 0.0, 0.0)
    assert config_from_mapping(printed, check_files=False).cluster == cfg.cluster


@pytest.mark.usefixtures("without_drawing")
def test_the_workflow_of_a_robot(
    address: str, elsewhere: Path, run_line: RunLine, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("realworld_collect_data", "realworld_peginsertion_rlpd_cnn_async"):
        file = elsewhere / "examples" / "embodiment" / "config" / f"{name}.yaml"
        file.write_text(file.read_text().replace("ROBOT_IP", address))

    assert run_line(COLLECT, *FAST, "runner.num_data_episodes=4") == 0
    (recording,) = (elsewhere / "logs").glob("*/data.pkl")
    said = " ".join(capsys.readouterr().out.split())
    assert f"4 episodes (4 success, 0 failure) in logs/{recording.parent.name}/data.pkl" in said

    assert run_line(PROCESS.replace("/path/to/your/input_data.pkl", str(recording))) == 0
    collected = recording.parent / "collected_data"
    assert f"next: rewardlab train-reward --data {collected}" in capsys.readouterr().out
    summary = summarize(collected)
    assert summary.success_episodes == 4
    assert summary.success_frames >= 4 * 20  # each episode holds success for 20 steps

    assert run_line(TRAIN.replace("/path/to/collected_data", str(collected)), *SMALL_MODEL) == 0
    model = load_reward_model(elsewhere / "logs/reward_model_realworld/checkpoints/best_model")
    assert model.settings()["image_keys"] == ["base_camera", "wrist_camera"]
    pictures = list((elsewhere / "logs/training_data_debug_realworld").rglob("*.png"))
    assert {path.parent.name for path in pictures} == {"success", "failure"}

    assert run_line(RUN, *FAST, *FEW_STEPS, f"algorithm.sac.demo_path={collected}") == 0
    metrics = (elsewhere / "logs/realworld_peginsertion_rlpd_cnn_async/metrics.jsonl").read_text()
    assert '"rollout/model_rewards"' in metrics


@pytest.mark.usefixtures("without_drawing")
def test_the_commands_of_the_page_on_data_from_robots(
    address: str, elsewhere: Path, run_line: RunLine, capsys: pytest.CaptureFixture[str]
) -> None:
    """In their order; the first ones start the simulated robot and are the printed one above."""
    blocks = re.findall(r"^```\n(.+?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line.partition("    #")[0] for block in blocks for line in block.replace("\\\n", "").splitlines()]
    assert lines[0].startswith("rewardlab robot-sim --port")
    assert lines[1] == COLLECT
    robot = f'cluster.node_groups=[{{hardware: {{type: Franka, configs: [{{robot_ip: "{address}"}}]}}}}]'
    few = ["--episodes", "2", robot, FAST[0], "env.train.success_hold_steps=4", "env.train.max_episode_steps=40"]
    more = {"collect": few, "data": [], "bash": SMALL_MODEL}
    for line in lines[2:]:
        words = line.removeprefix("rewardlab ").split()
        if words[0] == "bash":
            assert run_line(line, *SMALL_MODEL) == 0, line
        else:
            assert main([*words, *more[words[0]]]) == 0, line
    assert summarize("logs/peg/collected_data").episodes == 4
    assert "crop of base_camera: 32x32 pixels from row 24, column 16" in capsys.readouterr().out
    load_reward_model("logs/reward_model_realworld/checkpoints/best_model")
