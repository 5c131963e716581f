"""The Gymnasium contract of the table: spaces, seeding, auto-reset, facts about success."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from rewardlab.envs import make_vec_env
from rewardlab.envs.policies import make_policy
from rewardlab.envs.tabletop import TASKS, TabletopVectorEnv
from rewardlab.envs.tabletop.tasks import PROPRIO, STATE_LAYOUT
from rewardlab.errors import ConfigError


@pytest.mark.parametrize("task", list(TASKS))
@pytest.mark.parametrize("obs_mode", ["state", "state+images", "proprio+images"])
@pytest.mark.filterwarnings("error")
def test_gymnasiums_own_checker_is_content(task: str, obs_mode: str) -> None:
    env = gymnasium.make(f"tabletop/{task}", obs_mode=obs_mode, render_mode="rgb_array")
    check_env(env.unwrapped)


def test_a_robot_that_looks_is_not_told_where_the_object_is() -> None:
    env = TabletopVectorEnv(num_envs=3, obs_mode="proprio+images")
    observation, _ = env.reset(seed=0)
    assert observation["state"].shape == (3, 8)
    assert np.array_equal(observation["state"], env.state[:, :8])
    before = observation["state"]
    assert list(STATE_LAYOUT)[: len(PROPRIO)] == list(PROPRIO)
    env._world.object += 0.1
    env._world.goal += 0.1
    assert np.array_equal(env._observe(env._everyone)["state"], before)


def test_gymnasium_makes_the_vector_environment_by_id() -> None:
    env = gymnasium.make_vec("tabletop/PickCube", num_envs=3, vectorization_mode="vector_entry_point")
    assert isinstance(env.unwrapped, TabletopVectorEnv)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)


@pytest.mark.parametrize("task", list(TASKS))
def test_the_same_seed_gives_the_same_run_and_another_seed_another(task: str) -> None:
    def run(seed: int) -> np.ndarray:
        env = TabletopVectorEnv(task, 4, max_episode_steps=7, randomize=True)
        policy = make_policy("noisy_expert", env, seed)
        observation, _ = env.reset(seed=seed)
        seen = []
        for _ in range(20):
            observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
            policy.begin(terminated | truncated)
            seen += [observation.ravel(), reward, env.render_cameras()["base_camera"].ravel()]
        return np.concatenate(seen)

    assert np.array_equal(run(3), run(3))
    assert not np.array_equal(run(3), run(4))


def test_the_last_observation_of_an_episode_is_not_the_first_of_the_next() -> None:
    env = TabletopVectorEnv("PickCube", 2, max_episode_steps=5)
    env.reset(seed=0)
    for _ in range(4):
        before, *_ = env.step(np.zeros((2, 4)))
    after, _, terminated, truncated, infos = env.step(np.zeros((2, 4)))
    assert truncated.all()
    assert not terminated.any()
    for i in range(2):
        final = infos["final_obs"][i]
        assert np.abs(final[8:11] - before[i, 8:11]).max() < 0.01  # the cube stayed where it was
        assert np.abs(after[i, 8:11] - before[i, 8:11]).max() > 0.01  # and lies elsewhere in the new episode
    assert infos["_final_obs"].all()
    assert set(infos["final_info"]) >= {"success", "success_once", "success_at_end", "dense_reward"}


def test_final_pictures_show_the_ended_episode_and_only_on_request() -> None:
    env = TabletopVectorEnv("PickCube", 3, max_episode_steps=6, motion_noise=0.0)
    env.reset(seed=0)
    for _ in range(5):
        env.step(np.zeros((3, 4)))
    before = env.render_cameras()["base_camera"]
    with pytest.raises(ValueError, match="no episode ended in the last step"):
        env.render_cameras(final=True)
    env.step(np.zeros((3, 4)))
    ended = env.render_cameras(env_ids=np.array([2, 0]), final=True)["base_camera"]
    assert np.array_equal(ended, before[[2, 0]])  # nothing moves under zero actions
    assert not np.array_equal(env.render_cameras()["base_camera"], before)


def test_success_ends_the_episode_only_when_it_was_held_long_enough() -> None:
    env = TabletopVectorEnv("PickCube", 8, success_hold_steps=6)
    policy = make_policy("expert", env, 0)
    observation, _ = env.reset(seed=0)
    streak = np.zeros(8, int)
    for _ in range(49):
        observation, _, terminated, truncated, infos = env.step(policy.act(observation))
        final = infos.get("final_info", infos)["success"]
        streak = np.where(np.where(terminated, final, infos["success"]), streak + 1, 0)
        assert np.array_equal(terminated, streak == 6)
        assert not (terminated & truncated).any()
        streak[terminated] = 0
        if terminated.any():
            assert infos["final_info"]["success_at_end"][terminated].all()
            return
    pytest.fail("the expert never held its success")


def test_success_of_a_frame_is_of_that_frame() -> None:
    env = TabletopVectorEnv("PickCube", 1, max_episode_steps=None)
    policy = make_policy("expert", env, 0)
    observation, infos = env.reset(seed=0)
    while not infos["success"][0]:
        observation, _, _, _, infos = env.step(policy.act(observation))
    for _ in range(10):  # let go: the cube falls out of the goal
        _, _, _, _, infos = env.step(np.float32([[0, 0, 0, 1]]))
    assert not infos["success"][0]
    assert infos["success_once"][0]


@pytest.mark.parametrize("reward", ["dense", "sparse"])
def test_rewards_grow_with_progress_and_both_are_reported(reward: str) -> None:
    env = TabletopVectorEnv("PickCube", 16, reward=reward)
    policy = make_policy("expert", env, 0)
    observation, _ = env.reset(seed=0)
    rewards = []
    for _ in range(45):
        observation, value, _, _, infos = env.step(policy.act(observation))
        assert np.array_equal(value, infos[f"{reward}_reward"])
        assert np.array_equal(infos["sparse_reward"], infos["success"].astype(np.float32))
        rewards.append(value.mean())
    assert rewards[-1] > rewards[12] >= rewards[0]


def test_a_reset_mask_restarts_only_those_environments() -> None:
    env = TabletopVectorEnv("PickCube", 3, autoreset_mode=AutoresetMode.DISABLED)
    first, _ = env.reset(seed=0)
    second, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert np.array_equal(first[[0, 2]], second[[0, 2]])
    assert not np.array_equal(first[1], second[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"obs_mode": "pixels"}, "unknown obs_mode 'pixels'"),
        ({"cameras": ["base_camra"]}, "Did you mean 'base_camera'"),
        ({"randomize": {"lights": True}}, "Did you mean 'light'"),
        ({"randomize": {"light": 3}}, "expected true or false"),
        ({"reward": "shaped"}, "unknown reward 'shaped'"),
        ({"task": "PickCub"}, "Did you mean 'PickCube'"),
    ],
)
def test_wrong_settings_are_answered_with_the_choices(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TabletopVectorEnv(**settings)


def test_wrong_actions_are_refused_by_name() -> None:
    env = TabletopVectorEnv("PickCube", 2)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros((2, 4)))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        env.step(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="environment 1 is not finite"):
        env.step(np.float32([[0] * 4, [np.nan, 0, 0, 0]]))


@pytest.mark.parametrize("task", list(TASKS))
@pytest.mark.parametrize(
    ("policy_name", "low", "high"), [("expert", 0.95, 1), ("noisy_expert", 0.3, 0.7), ("random", 0, 0.02)]
)
def test_policies_succeed_as_often_as_promised(task: str, policy_name: str, low: float, high: float) -> None:
    env = make_vec_env(f"tabletop/{task}", num_envs=500, max_episode_steps=50)
    policy = make_policy(policy_name, env, 0)
    observation, _ = env.reset(seed=0)
    for _ in range(50):
        observation, _, _, _, infos = env.step(policy.act(observation))
    assert low <= infos["final_info"]["success_once"].mean() <= high


def test_infos_of_a_step_stay_what_they_were() -> None:
    env = TabletopVectorEnv("PickCube", 2, max_episode_steps=1)
    env.reset(seed=0)
    *_, infos = env.step(np.zeros((2, 4)))
    env.reset(seed=1)
    assert infos["_final_obs"].all()
    assert infos["final_info"]["_success"].all()
