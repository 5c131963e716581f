"""What a training run writes for its page is what happens in it, and changes nothing in it."""

from pathlib import Path

import pytest
from policy_runs import SMALL, history, learned, same, weights

from rewardlab.config import ExperimentConfig, load_config
from rewardlab.errors import ConfigError
from rewardlab.live_state import LiveState
from rewardlab.pipelines import train_policy
from rewardlab.rewards.manager import RewardManager

pytestmark = pytest.mark.usefixtures("without_drawing")

STEPS = 20  # of each of the 8 environments, in episodes of 5 steps at most


def config(out: Path, *more: str) -> ExperimentConfig:
    where = [f"runner.logger.log_path={out.parent}", f"runner.logger.experiment_name={out.name}"]
    return load_config("tabletop_ppo_mlp", [*SMALL, "runner.max_epochs=2", *where, *more])


def test_curves_and_outcomes_are_those_of_the_run_and_leave_it_as_it_is(tmp_path: Path) -> None:
    live = LiveState("a run")
    watched = train_policy.run(config(tmp_path / "watched"), live=live)
    assert same(weights(watched), weights(train_policy.run(config(tmp_path / "alone"))))

    rows = history(tmp_path / "watched")
    assert live.curves()["env/return"] == [(row["env_steps"], row["env/return"]) for row in rows]
    shown = live.snapshot()
    assert shown.metrics["eval/return"] == rows[-1]["eval/return"]
    assert shown.values == {"iteration": 2}
    assert sum(shown.outcomes.values()) == 8 * STEPS // 5
    (env,) = shown.envs
    assert env.name == "tabletop/PickCube"
    assert not env.controls


def test_a_classifier_that_ends_episodes_is_asked_once_a_step(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, asked = LiveState("a run"), 0
    score = RewardManager.score

    def counting(manager: RewardManager, name: str, data: object, position: int | None = None) -> object:
        nonlocal asked
        asked += position is None  # the reward workers, which score whole rollouts, number frames
        return score(manager, name, data, position)

    monkeypatch.setattr(RewardManager, "score", counting)
    more = learned(model, "reward.model.ends_episode=true", "reward.reward_threshold=0.001")
    train_policy.run(config(tmp_path / "run", *more, "env.train.success_hold_steps=2"), live=live)

    assert asked == STEPS
    shown = live.snapshot()
    (env,) = shown.envs
    assert len(env.probabilities) == STEPS
    assert all(0 < probability < 1 for _, probability in env.probabilities)
    assert env.values["threshold"] == 0.001
    assert env.values["hold_needed"] == 2
    assert env.values["claims"] == 2  # every second frame ends an episode
    assert shown.outcomes == {"success": 8 * STEPS // 2}
    assert env.cameras == ["base_camera"]
    frame = live.envs[0].frame("base_camera")
    assert frame is not None
    assert frame[1].shape == (32, 32, 3)


def test_a_page_of_a_robot_on_ray_is_refused() -> None:
    robot = ["cluster.node_groups=[{hardware: {type: Franka, configs: [{robot_ip: 127.0.0.1}]}}]"]
    robot += ["env.train.id=robot/peg_insertion", "env.train.target_ee_pose=[0.5,0.0,0.1,-3.14,0.0,0.0]"]
    robot += ["env.train.num_envs=1", "cluster.backend=ray"]
    load_config("tabletop_ppo_mlp", robot, check_files=False)
    with pytest.raises(ConfigError, match=r"runner.page.port: found 8008, .* set runner.page.port=null, or cluster"):
        load_config("tabletop_ppo_mlp", [*robot, "runner.page.port=8008"])


def test_a_page_without_a_run_that_acts_is_refused(tmp_path: Path) -> None:
    more = ["runner.page.port=0", f"data.data_path={tmp_path}"]
    with pytest.raises(ConfigError, match=r"runner.page.port: found 0, but only runs that act have a page"):
        load_config("reward_training", more)
