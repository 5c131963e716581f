"""Fast stepping against ManiSkill's own: the same observations, rewards and successes, also in contact."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rewardlab.envs.maniskill.env import ManiSkillEnv, find_stepper
from rewardlab.envs.maniskill.fast_stepping import FastStepper
from rewardlab.envs.maniskill.options import ManiSkillOptions, read_options
from rewardlab.errors import ConfigError

Policy = Callable[[Any], Any]  # observation -> action
MODES = ("pd_joint_delta_pos", "pd_ee_delta_pos", "pd_ee_delta_pose")
OTHER_MODES = ("pd_joint_pos", "pd_joint_target_delta_pos", "pd_ee_target_delta_pose", "pd_ee_pose", "pd_joint_vel")


def simulator(**changes: Any) -> Any:
    plain = {"num_envs": 1, "gpu_sim_enabled": False, "agent": SimpleNamespace(), "obs_mode": "state"}
    return SimpleNamespace(**plain | changes)


def test_stepping_is_fast_where_it_can_be() -> None:
    several = simulator(agent=SimpleNamespace(agents=[1, 2]))
    assert isinstance(find_stepper("maniskill/X", simulator(), ManiSkillOptions()), FastStepper)
    assert find_stepper("maniskill/X", simulator(), ManiSkillOptions(stepping="original")) is None
    for slow in (several, simulator(agent=None), simulator(gpu_sim_enabled=True), simulator(obs_mode="rgb")):
        assert find_stepper("maniskill/X", slow, ManiSkillOptions()) is None
    with pytest.raises(ConfigError, match=r"maniskill/X.*options\.stepping is fast.*use auto"):
        find_stepper("maniskill/X", several, ManiSkillOptions(stepping="fast"))
    with pytest.raises(ConfigError, match=r"maniskill/X.*options\.stepping.*auto.*fast.*original"):
        read_options("maniskill/X", {"stepping": "quick"})


def make_pair(task: str, control_mode: str) -> list[ManiSkillEnv]:
    pytest.importorskip("mani_skill", reason="ManiSkill is not installed: make maniskill")
    return [
        ManiSkillEnv(task, ManiSkillOptions(control_mode=control_mode, stepping=way)) for way in ("original", "fast")
    ]


def assert_equal_steps(pair: list[ManiSkillEnv], policy: Policy, seed: int, steps: int) -> list[dict[str, Any]]:
    """Step both ways by the same actions; return the infos."""
    infos = []
    (observation, _), _ = [env.reset(seed=seed) for env in pair]
    for _ in range(steps):
        action = policy(observation)
        (observation, reward, *_, info), (found, found_reward, *_, found_info) = [env.step(action) for env in pair]
        np.testing.assert_array_equal(found, observation)  # bits: rounding would grow from step to step
        assert found_reward == pytest.approx(reward, abs=1e-5)
        np.testing.assert_equal(found_info, info)
        infos.append(info)
    return infos


def random_policy(env: ManiSkillEnv, seed: int) -> Policy:
    rng = np.random.default_rng(seed)
    return lambda _: rng.uniform(-1.2, 1.2, env.action_space.shape).astype(np.float32)


@pytest.mark.parametrize("control_mode", MODES)
@pytest.mark.parametrize(("task", "steps"), [("PickCube-v1", 200), ("PushCube-v1", 30)])
def test_random_steps_are_equal(task: str, steps: int, control_mode: str) -> None:
    pair = make_pair(f"maniskill/{task}", control_mode)
    for seed in range(3):
        assert_equal_steps(pair, random_policy(pair[0], seed), seed, steps)


@pytest.mark.parametrize("control_mode", OTHER_MODES)
def test_other_control_modes_are_equal(control_mode: str) -> None:
    pair = make_pair("maniskill/PickCube-v1", control_mode)
    assert_equal_steps(pair, random_policy(pair[0], 0), seed=0, steps=30)


@pytest.mark.parametrize(
    ("task", "control_mode"),
    [
        ("StackCube-v1", "pd_ee_delta_pos"),
        ("PegInsertionSide-v1", "pd_ee_delta_pos"),  # builds its scene at each reset
        ("SO100GraspCube-v1", "pd_joint_delta_pos"),  # observes the targets of its controllers
    ],
)
def test_tasks_without_formulas_are_equal(task: str, control_mode: str) -> None:
    pair = make_pair(f"maniskill/{task}", control_mode)
    for seed in range(2):
        assert_equal_steps(pair, random_policy(pair[0], seed), seed, steps=30)


@pytest.mark.parametrize("task", ["PickCube-v1", "PushCube-v1", "StackCube-v1"])
def test_contacts_and_successes_are_equal(task: str) -> None:
    pair = make_pair(f"maniskill/{task}", "pd_ee_delta_pos")
    episodes = [assert_equal_steps(pair, lambda _: pair[0].scripted_action(), seed, steps=40) for seed in range(4)]
    assert sum(any(info["success"] for info in infos) for infos in episodes) >= 3
    assert task != "PickCube-v1" or sum(info["grasp"] for infos in episodes for info in infos) > 20


def test_both_ways_of_stepping_can_be_mixed() -> None:
    original, fast = make_pair("maniskill/PickCube-v1", "pd_ee_target_delta_pos")
    policy = random_policy(original, 0)
    for env in (original, fast):
        env.reset(seed=0)
    for step in range(20):
        action = policy(None)
        expected, *_ = original.step(action)
        found = fast.step(action)[0] if step % 2 else fast.simulator.step(action)[0][0].numpy()
        np.testing.assert_array_equal(found, expected)


def test_formulas_that_no_longer_agree_are_not_used(caplog: pytest.LogCaptureFixture) -> None:
    original, fast = make_pair("maniskill/PickCube-v1", "pd_ee_delta_pos")
    for env in (original, fast):
        dense = env.simulator.compute_dense_reward
        env.simulator.compute_dense_reward = lambda *args, dense=dense, **kwargs: dense(*args, **kwargs) + 1
    assert_equal_steps([original, fast], random_policy(original, 0), seed=0, steps=5)
    assert "PickCubeEnv is not the version" in caplog.text


def test_nan_in_an_action_is_refused() -> None:
    _, fast = make_pair("maniskill/PickCube-v1", "pd_ee_delta_pos")
    fast.reset(seed=0)
    with pytest.raises(ValueError, match="NaN"):
        fast.step(np.full(4, np.nan, np.float32))
