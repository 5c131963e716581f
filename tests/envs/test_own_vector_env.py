"""Vector environments of a user's own: whatever their autoreset mode, they end and begin episodes as copies do."""

from typing import Any

import numpy as np
import pytest

from rewardlab.envs import make_vec_env
from rewardlab.envs.camera_frames import CameraFrames
from rewardlab.envs.step_results import known_success
from rewardlab.errors import ConfigError, DataError
from rewardlab.observations import as_observation

MODES = ("next_step", "same_step", "disabled")


def steps(name: str, count: int, **settings: Any) -> tuple[Any, list[Any]]:
    env = make_vec_env(f"own_envs:{name}", **{"num_envs": 2, **settings})
    env.reset(seed=0)
    return env, [env.step(np.ones(env.action_space.shape, int)) for _ in range(count)]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_resets_in_the_step_that_ends_an_episode(mode: str) -> None:
    _, rows = steps(mode, 13)
    for number, (obs, reward, _, truncated, infos) in enumerate(rows, 1):
        assert truncated.tolist() == [number % 6 == 0] * 2
        assert ("final_obs" in infos) == truncated.any()
        if truncated.any():
            assert [row[0] for row in infos["final_obs"]] == reward.tolist() == [1, 1]
            assert infos["final_info"]["is_success"].tolist() == [1, 1]
            assert not known_success(infos, 2).any()  # a reset does not say
            assert (obs[:, 0] < 0).all()
        else:
            assert np.array_equal(obs[:, 0], reward.astype(np.float32))


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_the_last_frame_is_drawn_before_the_reset(mode: str) -> None:
    env = make_vec_env(f"own_envs:{mode}", num_envs=2, cameras=("view",))
    frames = CameraFrames(env, ("view",), (48, 64))
    frames.keep_last()
    env.reset(seed=0)
    for _ in range(6):
        obs, *_, infos = env.step(np.ones((2, 1)))
    last, now = frames.final(infos, np.array([1]))["view"], frames.now(obs)["view"]
    assert (last.shape, now.shape) == ((1, 48, 64, 3), (2, 48, 64, 3))
    assert last.mean() < now.mean()  # the further to the right, the darker


def test_render_after_a_reset_within_the_step_shows_another_episode() -> None:
    with pytest.raises(DataError, match=r"nor pictures.*\(state \[2\]\), and its render\(\) cannot"):
        make_vec_env("own_envs:same_step", num_envs=2, obs_mode="images")


@pytest.mark.parametrize("name", ["same_step_pixels", "disabled_pixels"])
def test_pictures_and_numbers_of_a_batch_are_told_apart(name: str) -> None:
    _, rows = steps(name, 1)
    assert {key: part.shape for key, part in as_observation(rows[0][0]).items()} == {"state": (2, 2)}
    _, rows = steps(name, 6, obs_mode="state+images", cameras=("top",), image_size=(3, 32, 32))
    obs, *_, infos = rows[-1]
    assert obs["images"]["top"].shape == (2, 32, 32, 3)
    last = infos["final_obs"][1]
    assert (last["state"][0], last["images"]["top"].shape) == (1, (32, 32, 3))
    assert last["images"]["top"].mean() < obs["images"]["top"][1].mean()


def test_environments_end_one_by_one_and_success_is_that_of_the_right_frame() -> None:
    _, rows = steps("Batch", 3)
    assert [row[2].tolist() for row in rows] == [[False, False], [True, False], [False, True]]
    assert [row[0][:, 0].tolist() for row in rows] == [[1, 1], [0, 2], [1, 0]]
    _, _, _, _, infos = rows[1]
    assert infos["success"].tolist() == [False, True]  # the first frame of an episode, and the second of another
    assert infos["final_info"]["success"][0]
    assert infos["final_obs"][0].tolist() == [2]


@pytest.mark.parametrize("name", ["Batch", "disabled", "same_step"])
def test_the_rules_of_the_config_hold(name: str) -> None:
    _, rows = steps(name, 4, num_envs=8, max_episode_steps=2)
    assert [(row[2] | row[3]).all() for row in rows] == [False, True, False, True]
    _, rows = steps(name, 5, num_envs=8, success_hold_steps=2, reward="sparse")
    ends = next(row for row in rows if row[2][7])
    assert ends[1][7] == 1
    assert not ends[3][7]


def test_a_batch_that_resets_too_much_is_an_error() -> None:
    with pytest.raises(DataError, match=r"'own_envs:Batch': reset\(options=.*changed the observations of environments"):
        steps("Batch", 3, options={"follows_masks": False})


def test_a_reset_without_options_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"'own_envs:Unmasked': its reset\(\) takes no options"):
        make_vec_env("own_envs:Unmasked", num_envs=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"processes": 2}, "env.train.processes: found 2, but 'own_envs:Batch' is a vector environment of yours"),
        ({"action_repeat": 2}, "env.train.action_repeat: found 2"),
        ({"obs_mode": "proprio+images"}, "does not offer proprio"),
    ],
)
def test_keys_that_a_batch_cannot_follow_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_vec_env("own_envs:Batch", num_envs=2, **settings)
