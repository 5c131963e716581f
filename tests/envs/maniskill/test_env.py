"""ManiSkill's PickCube through make_vec_env: steps, seeds, pictures. Skipped where the simulator is not installed."""

from typing import Any

import numpy as np
import pytest

from rewardlab.envs import make_vec_env
from rewardlab.envs.copies import CopiesVectorEnv

pytest.importorskip("mani_skill", reason="ManiSkill is not installed: make maniskill")


@pytest.fixture(scope="module")
def env() -> Any:
    made = make_vec_env("maniskill/PickCube-v1", num_envs=2)
    yield made
    made.close()


def rollout(env: Any, seed: int, steps: int = 5) -> Any:
    seen = [env.reset(seed=seed)[0]]
    rng = np.random.default_rng(0)
    for _ in range(steps):
        seen.append(env.step(rng.uniform(-1, 1, env.action_space.shape).astype(np.float32))[0])
    return np.stack(seen)


def test_steps_are_numpy_and_say_success_and_grasp(env: CopiesVectorEnv) -> None:
    observation, info = env.reset(seed=0)
    assert observation.dtype == np.float32
    assert env.observation_space.contains(observation)
    assert info["success"].dtype == bool
    _, reward, _, _, info = env.step(env.action_space.sample())
    assert reward.shape == (2,)
    assert {"success", "grasp"} <= set(info)


def test_the_seed_decides_everything_and_copies_differ(env: CopiesVectorEnv) -> None:
    first, other, again = rollout(env, 1), rollout(env, 2), rollout(env, 1)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first[:, 0], first[:, 1])


def test_episodes_end_at_the_time_limit_and_the_next_continues_the_seed(env: CopiesVectorEnv) -> None:
    starts = []
    for _ in range(2):
        env.reset(seed=3)
        for step in range(50):
            observation, _, terminated, truncated, _ = env.step(np.zeros(env.action_space.shape, np.float32))
            assert truncated.all() == (step == 49)
            assert not terminated.any()
        starts.append(observation)
    assert np.array_equal(starts[0], starts[1])


def test_drawing_shows_the_goal_and_does_not_disturb_physics(env: Any) -> None:
    undisturbed = rollout(env, 4)
    env.reset(seed=4)
    kept = env.call("keep_state")
    rng = np.random.default_rng(0)
    first = env.render_cameras(["base_camera"], (64, 64))["base_camera"]
    seen = []
    for _ in range(5):
        seen.append(env.step(rng.uniform(-1, 1, env.action_space.shape).astype(np.float32))[0])
        now = env.render_cameras(["base_camera"], (64, 64))["base_camera"]
    assert np.array_equal(np.stack(seen), undisturbed[1:])
    assert not np.array_equal(first, now)
    inner = env._group.copies[0].env.unwrapped
    assert np.array_equal(inner.draw_state(kept[0], ("base_camera",), (64, 64))["base_camera"], first[0])
    red, green, blue = first.astype(int).transpose(3, 0, 1, 2)
    assert ((green > 100) & (red < 60) & (blue < 60)).any(axis=(1, 2)).all()
