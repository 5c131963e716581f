"""BitFlip: what an action does, where an episode ends, and in which form its goals travel."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from rewardlab.config.schema import EnvConfig
from rewardlab.envs import make_vec_env
from rewardlab.envs.bitflip import BitFlipVectorEnv
from rewardlab.errors import ConfigError, DataError
from rewardlab.observations import as_observation
from rewardlab.rl.evaluation import Evaluation
from rewardlab.workers.env import EnvWorker


class Solver(torch.nn.Module):
    """Flips the first bit that is wrong."""

    def act(self, observation: Any, generator: torch.Generator, explore: bool = True) -> dict[str, torch.Tensor]:
        return {"action": (observation["state"] != observation["desired_goal"]).int().argmax(-1)}


def wrong_bits(obs: dict[str, np.ndarray]) -> np.ndarray:
    return np.asarray(obs["observation"] != obs["desired_goal"])


def test_an_action_flips_its_bit_and_no_other() -> None:
    env = make_vec_env("toy/BitFlip", num_envs=5, options={"bits": 6})
    before, _ = env.reset(seed=0)
    kept = {key: value.copy() for key, value in before.items()}
    correct = (~wrong_bits(before)).argmax(1)  # away from the goal, so that no episode ends
    after, reward, terminated, truncated, infos = env.step(correct)
    flipped = np.zeros((5, 6), bool)
    flipped[np.arange(5), correct] = True
    assert np.array_equal(after["observation"] != before["observation"], flipped)
    assert np.array_equal(after["achieved_goal"], after["observation"])
    assert np.array_equal(after["desired_goal"], before["desired_goal"])
    assert (reward == -1).all()
    assert not (terminated | truncated | infos["success"]).any()
    assert all(np.array_equal(before[key], kept[key]) for key in kept)  # what was handed out stays
    assert env.observation_space.contains(after)


def test_an_episode_ends_at_its_goal_and_starts_again_within_the_step() -> None:
    env = make_vec_env("toy/BitFlip", num_envs=50, options={"bits": 4})
    assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    obs, _ = env.reset(seed=1)
    close = wrong_bits(obs).sum(1) == 1
    goal = obs["desired_goal"]
    obs, reward, terminated, truncated, infos = env.step(wrong_bits(obs).argmax(1))
    assert close.any()
    assert np.array_equal(terminated, close)
    assert np.array_equal(reward, np.where(close, 0, -1))
    assert not truncated.any()
    assert np.array_equal(infos["final_info"]["success"] & infos["final_info"]["_success"], close)
    assert not infos["success"].any()  # of the frames beside it, which are new episodes' first where one ended
    for i in np.flatnonzero(close):
        assert np.array_equal(infos["final_obs"][i]["observation"], goal[i])
        assert np.array_equal(infos["final_obs"][i]["desired_goal"], goal[i])
    assert [row is not None for row in infos["final_obs"]] == close.tolist()
    assert wrong_bits(obs).any(1).all()


def test_an_episode_has_as_many_steps_as_bits_unless_told() -> None:
    for limit, expected in ((None, 7), (3, 3)):
        env = make_vec_env("toy/BitFlip", num_envs=2, max_episode_steps=limit, options={"bits": 7})
        obs, _ = env.reset(seed=0)
        correct = (~wrong_bits(obs)).argmax(1)  # flipped back and forth; what is wrong stays wrong
        for step in range(1, expected + 1):
            _, _, terminated, truncated, _ = env.step(correct)
            assert not terminated.any()
            assert truncated.tolist() == [step == expected] * 2


def test_starts_and_goals_are_even_and_follow_from_the_seed() -> None:
    env = make_vec_env("toy/BitFlip", num_envs=4000)
    obs, infos = env.reset(seed=3)
    assert obs["observation"].shape == (4000, 15)
    assert obs["observation"].mean(0) == pytest.approx([0.5] * 15, abs=0.04)
    assert wrong_bits(obs).mean(0) == pytest.approx([0.5] * 15, abs=0.04)
    assert not infos["success"].any()
    again, _ = make_vec_env("toy/BitFlip", num_envs=4000).reset(seed=3)
    other, _ = env.reset(seed=4)
    assert np.array_equal(obs["desired_goal"], again["desired_goal"])
    assert not np.array_equal(obs["desired_goal"], other["desired_goal"])
    one_bit, _ = make_vec_env("toy/BitFlip", num_envs=100, options={"bits": 1}).reset(seed=0)
    assert wrong_bits(one_bit).all()


def test_a_mask_resets_some_environments_alone() -> None:
    env = make_vec_env("toy/BitFlip", num_envs=3)
    before, _ = env.reset(seed=0)
    after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    changed = (after["desired_goal"] != before["desired_goal"]).any(1)
    assert changed.tolist() == [False, True, False]


def test_gymnasium_knows_it() -> None:
    env = gymnasium.make_vec("toy/BitFlip", num_envs=2, bits=3)
    assert isinstance(env.unwrapped, BitFlipVectorEnv)
    assert env.reset(seed=0)[0]["observation"].shape == (2, 3)


def test_its_goals_arrive_at_a_policy_and_in_a_rollout() -> None:
    config = EnvConfig(id="toy/BitFlip", num_envs=64)
    figures = Evaluation(config, seed=0).run(Solver())
    assert figures["success_once"] == 1.0
    assert figures["return"] == pytest.approx(1 - figures["length"])  # the last step costs nothing
    worker = EnvWorker(config, seed=0, keep_next=True)
    arrival = worker.begin(0)
    for _ in range(20):
        state = {key: torch.from_numpy(value) for key, value in arrival.observation.items()}
        arrival = worker.step(Solver().act(state, torch.Generator())["action"].numpy())
    rollout = worker.fetch().unpack()
    assert set(rollout["observation"].keys()) == {"state", "achieved_goal", "desired_goal"}
    ended, after = rollout["terminated"], rollout["next_observation"]
    assert ended.any()
    assert torch.equal((after["state"] == after["desired_goal"]).all(-1), ended)  # the true last frames
    assert torch.equal(rollout["success"], ended)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"options": {"bit": 3}}, "unknown option of 'toy/BitFlip' 'bit'. Did you mean 'bits'"),
        ({"options": {"bits": 0}}, "'bits' of 'toy/BitFlip': found 0"),
        ({"options": {"bits": True}}, "found True, expected a positive whole number"),
        ({"reward": "sparse"}, "reward: 'toy/BitFlip' does not offer it"),
        ({"obs_mode": "images"}, "obs_mode: 'toy/BitFlip' does not offer it"),
    ],
)
def test_settings_it_does_not_have_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_vec_env("toy/BitFlip", **settings)


def test_another_toy_is_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'toy/BitFlip'"):
        make_vec_env("toy/BitFlop")


def test_steps_that_make_no_sense_are_refused() -> None:
    env = make_vec_env("toy/BitFlip", num_envs=2)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(2, np.int64))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"expected integers \(2,\)"):
        env.step(np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="expected integers"):
        env.step(np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="actions are 0 to 15, expected 0 to 14"):
        env.step(np.array([0, 15]))


def test_observations_with_other_keys_are_refused() -> None:
    rows = np.zeros((2, 3))
    travelling = as_observation({"observation": rows, "achieved_goal": rows[:, :1], "desired_goal": rows[:, 0]})
    assert {key: value.shape for key, value in travelling.items()} == {
        "state": (2, 3),
        "achieved_goal": (2, 1),
        "desired_goal": (2, 1),
    }
    with pytest.raises(DataError, match=r"observations have goal; expected states, .* with 'state'"):
        as_observation({"goal": rows})
    with pytest.raises(DataError, match="observations have state, observation; expected"):
        as_observation({"state": rows, "observation": rows})
