"""ManiSkill's tasks through make_vec_env: steps, seeds, pictures. Skipped where the simulator is not installed."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from child_runs import PRINT_CONTRAST, run_env

from rewardlab.envs import make_vec_env
from rewardlab.envs.copies import CopiesVectorEnv
from rewardlab.envs.maniskill.env import ManiSkillEnv
from rewardlab.envs.maniskill.options import ManiSkillOptions

CAMERA, SIZE = "base_camera", (64, 64)


@pytest.fixture(scope="module")
def env(simulator_installed: None) -> Iterator[CopiesVectorEnv]:
    made = make_vec_env("maniskill/PickCube-v1", num_envs=2, processes=1)
    assert isinstance(made, CopiesVectorEnv)
    yield made
    made.close()


def actions(env: CopiesVectorEnv, steps: int) -> Any:
    return np.random.default_rng(0).uniform(-1, 1, (steps, *(env.action_space.shape or ()))).astype(np.float32)


def rollout(env: CopiesVectorEnv, seed: int, steps: int = 5) -> Any:
    return np.stack([env.reset(seed=seed)[0], *(env.step(action)[0] for action in actions(env, steps))])


def draw(env: CopiesVectorEnv, **settings: Any) -> Any:
    return env.render_cameras([CAMERA], SIZE, **settings)[CAMERA]


def test_steps_are_plain_values_and_say_success_and_grasp(env: CopiesVectorEnv) -> None:
    observation, info = env.reset(seed=0)
    assert observation.dtype == np.float32
    assert env.observation_space.contains(observation)
    assert info["success"].dtype == info["grasp"].dtype == bool
    _, reward, _, _, info = env.step(env.action_space.sample())
    assert reward.shape == (2,)
    assert {"success", "grasp", "is_obj_placed"} <= set(info)


def test_the_seed_decides_the_whole_episode_and_copies_differ(env: CopiesVectorEnv) -> None:
    first, other, again = rollout(env, 1), rollout(env, 2), rollout(env, 1)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first[:, 0], first[:, 1])


def test_episodes_end_at_the_time_limit_and_the_next_one_continues_the_seed(env: CopiesVectorEnv) -> None:
    starts, lasts = [], []
    env.keep_last_frames("test", {SIZE: [CAMERA]})
    for _ in range(2):
        env.reset(seed=3)
        for step in range(50):
            last = env.call("keep_state")
            observation, _, terminated, truncated, _ = env.step(np.zeros(env.action_space.shape or (), np.float32))
            assert truncated.all() == (step == 49)
            assert not terminated.any()
        starts.append(observation)
        lasts.append(last)
    assert np.array_equal(starts[0], starts[1])
    assert not np.array_equal(draw(env, final=True), draw(env))  # drawn after the reset, of the episode before it
    assert np.array_equal(lasts[0][0].actors, lasts[1][0].actors)


def test_drawing_shows_the_goal_and_does_not_disturb_physics(env: CopiesVectorEnv) -> None:
    undisturbed = rollout(env, 4)
    env.reset(seed=4)
    kept = env.call("keep_state")[0]
    first = draw(env)
    seen = []
    for action in actions(env, 5):
        seen.append(env.step(action)[0])
        now = draw(env)
    assert np.array_equal(np.stack(seen), undisturbed[1:])
    assert not np.array_equal(first, now)
    drawn_later = env.call("draw_state", kept, (CAMERA,), SIZE)[0][CAMERA]
    assert np.array_equal(drawn_later, first[0])
    red, green, blue = first.astype(int).transpose(3, 0, 1, 2)
    assert ((green > 100) & (red < 60) & (blue < 60)).any(axis=(1, 2)).all()


def test_full_visuals_look_nearly_the_same(make: Any, env: CopiesVectorEnv) -> None:
    full = make("PickCube-v1", num_envs=2, options={"visuals": "full"})
    env.reset(seed=5)
    full.reset(seed=5)
    difference = np.abs(draw(env).astype(int) - draw(full))
    assert 0 < difference.mean() < 5


def test_goals_can_stay_hidden_and_cameras_can_be_placed(make: Any) -> None:
    pose = {"eye": [0.0, 0.0, 1.0], "target": [0.01, 0.0, 0.0], "fov": 1.0}
    env = make("PickCube-v1", options={"show_goal": False, "camera": pose})
    env.reset(seed=0)
    assert env.render_cameras([CAMERA], None)[CAMERA].shape == (1, 128, 128, 3)
    frame = env.render_cameras([CAMERA], (32, 48))[CAMERA][0]
    assert frame.shape == (32, 48, 3)
    red, green, blue = frame.astype(int).transpose(2, 0, 1)
    assert not ((green > 100) & (red < 60) & (blue < 60)).any()


def test_a_scene_that_each_reset_builds_anew_is_drawn_as_it_was(simulator_installed: None) -> None:
    env = ManiSkillEnv("maniskill/PickCube-v1", ManiSkillOptions())
    env._rebuilds, env.simulator.reconfiguration_freq = True, 1  # as tasks whose objects differ in each episode
    env.reset(seed=0)
    kept, first = env.keep_state(), env.render_cameras((CAMERA,), SIZE)[CAMERA]
    env.reset()
    assert env.keep_state().built_from != kept.built_from
    assert not np.array_equal(env.render_cameras((CAMERA,), SIZE)[CAMERA], first)
    assert np.array_equal(env.draw_state(kept, (CAMERA,), SIZE)[CAMERA], first)
    env.close()


def test_two_robots_have_one_row_of_actions(make: Any) -> None:
    env = make("TwoRobotPickCube-v1")
    env.reset(seed=0)
    assert env.single_action_space.shape == (8,)
    env.step(env.action_space.sample())


@pytest.mark.parametrize("task", ["PickCube-v1", "PullCube-v1", "PushCube-v1", "StackCube-v1"])
def test_experts_succeed(make: Any, task: str) -> None:
    env = make(task, num_envs=3)
    env.reset(seed=0)
    success = np.zeros(3, bool)
    for _ in range(35):
        *_, info = env.step(np.stack(env.call("scripted_action")))
        success |= info["success"]
    assert success.all()


def test_maniskills_own_id_is_drawn_without_a_gpu(simulator_installed: None) -> None:
    assert float(run_env("mani_skill.envs:PickCube-v1", 2, PRINT_CONTRAST).stdout) > 20
