"""The picture of the frame that followed an action, where an environment resets in the same step."""

from functools import partial
from typing import Any

import cv2
import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rewardlab.config.schema import EnvConfig
from rewardlab.envs import make_vec_env
from rewardlab.envs.camera_frames import CameraFrames
from rewardlab.envs.gym import make_one
from rewardlab.envs.tabletop import TabletopVectorEnv
from rewardlab.errors import DataError
from rewardlab.frame_sizes import FrameSize


class Watched(TabletopVectorEnv):
    """Remembers what CameraFrames has it draw; its own observations do not count."""

    asked: tuple[Any, ...] = ()

    def render_cameras(self, *arguments: Any, **which: Any) -> Any:
        if "image_size" in which:
            self.asked = (*self.asked, (arguments[0], which["env_ids"], which.get("final", False)))
        return super().render_cameras(*arguments, **which)


def staggered(env: TabletopVectorEnv) -> TabletopVectorEnv:
    """Two environments, the second of which ends in the next step."""
    env.reset(seed=0)
    env.step(np.ones((2, 4), np.float32))
    env.reset(options={"reset_mask": np.array([True, False])})
    return env


@pytest.mark.parametrize("obs_mode", ["state", "state+images"])
def test_the_true_last_frame_stands_where_an_episode_ended(obs_mode: str) -> None:
    twin = staggered(TabletopVectorEnv(num_envs=2, max_episode_steps=None))  # goes on where the other one resets
    env = staggered(TabletopVectorEnv(num_envs=2, max_episode_steps=2, obs_mode=obs_mode))
    actions = np.full((2, 4), 0.5, np.float32)
    twin.step(actions)
    obs, _, terminated, truncated, infos = env.step(actions)
    ended = terminated | truncated
    assert ended.tolist() == [False, True]
    frames = CameraFrames(env, ("base_camera", "wrist_camera"), (64, 64))
    followed = frames.following(obs, infos, ended)
    for camera, expected in twin.render_cameras(("base_camera", "wrist_camera"), (64, 64)).items():
        np.testing.assert_array_equal(followed[camera], expected)
        np.testing.assert_array_equal(frames.final(infos, np.array([1]))[camera], expected[1:])
        assert (frames.now(obs)[camera][1] != expected[1]).any()
        np.testing.assert_array_equal(frames.now(obs, np.array([0]))[camera], expected[:1])


def test_each_frame_that_is_needed_is_drawn_once() -> None:
    env = Watched(num_envs=2, max_episode_steps=2)
    staggered(env)
    obs, _, terminated, truncated, infos = env.step(np.zeros((2, 4), np.float32))
    CameraFrames(env, ("base_camera",), (32, 32)).following(obs, infos, terminated | truncated)
    assert [(ids.tolist(), final) for _, ids, final in env.asked] == [([1], True), ([0], False)]


def test_a_picture_of_the_observation_is_not_drawn_again() -> None:
    env = Watched(num_envs=2, obs_mode="images", image_size=(32, 32))
    obs, _ = env.reset(seed=0)
    assert CameraFrames(env, ("base_camera",), (32, 32)).now(obs)["base_camera"] is obs["images"]["base_camera"]
    assert env.asked == ()
    CameraFrames(env, ("base_camera", "wrist_camera"), (32, 32)).now(obs)
    assert [cameras for cameras, _, _ in env.asked] == [["wrist_camera"]]
    drawn = CameraFrames(env, ("base_camera",), (48, 48)).now(obs)["base_camera"]
    assert drawn.shape == (2, 48, 48, 3)
    assert len(env.asked) == 2


def test_a_camera_that_is_not_to_be_had_is_known_before_the_first_reset() -> None:
    with pytest.raises(DataError, match="no camera 'side': the environment has base_camera, wrist_camera"):
        CameraFrames(TabletopVectorEnv(), ("side",)).check()
    CameraFrames(TabletopVectorEnv(), ("wrist_camera",)).check()
    pictures = make_vec_env("CartPole-v1", obs_mode="images", cameras=["front"])
    with pytest.raises(DataError, match="no camera 'side': the environment has front"):
        CameraFrames(pictures, ("side",)).check()
    CameraFrames(pictures, ("front",)).check()


def test_pictures_of_observations_are_reduced_to_the_recorded_size_but_not_enlarged() -> None:
    config = EnvConfig(id="CartPole-v1", obs_mode="images", cameras=("front",), image_size=(3, 32, 32))
    env = SyncVectorEnv([partial(make_one, config)])  # without render_cameras
    obs = {"images": {"front": np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), np.uint8)}}

    def frames(size: FrameSize) -> Any:
        return CameraFrames(env, ("front",), {"front": size}).now(obs)["front"]

    assert np.array_equal(frames(FrameSize(32, 32)), obs["images"]["front"])
    assert frames(FrameSize(16, 16)).shape == (1, 16, 16, 3)
    for size in (FrameSize(48, 48), FrameSize(16, 20)):
        with pytest.raises(DataError, match=r"camera 'front' are 32x32; .*env\.train\.image_size=\[3,"):
            frames(size)
    assert frames(FrameSize(48, 48, resize="allow")).shape == (1, 48, 48, 3)


class Noise(gymnasium.Env[Any, Any]):
    """Its picture is noise, and larger than anybody asks for."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def render(self) -> Any:
        return np.random.default_rng(0).integers(0, 256, (90, 130, 3), np.uint8)


gymnasium.register("Noise-v0", Noise)


def test_a_reward_model_sees_the_frames_of_render_as_they_were_collected() -> None:
    """A larger picture is reduced in the same way for a collection, a reward model and a policy that sees it."""
    env, size = make_vec_env("Noise-v0", image_size=[3, 24, 32]), (24, 32)
    obs, _ = env.reset(seed=0)
    collected = CameraFrames(env, ("base_camera",), size).now(obs)["base_camera"]
    scored = CameraFrames(env, ("base_camera",), {"base_camera": FrameSize(*size)}).now(obs)["base_camera"]
    assert np.array_equal(collected[0], cv2.resize(Noise().render(), (32, 24), interpolation=cv2.INTER_AREA))
    assert np.array_equal(scored, collected)
    seen, _ = make_vec_env("Noise-v0", image_size=[3, 24, 32], obs_mode="images").reset(seed=0)
    assert np.array_equal(seen["images"]["base_camera"], collected)


def test_an_environment_that_resets_in_the_same_step_without_saying_so_is_refused() -> None:
    env: VectorEnv[Any, Any, Any] = TabletopVectorEnv(max_episode_steps=1)
    env.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
    env.reset(seed=0)
    obs, _, _, truncated, infos = env.step(np.zeros((1, 4), np.float32))
    with pytest.raises(DataError, match="metadata do not say so"):
        CameraFrames(env, ("base_camera",)).following(obs, infos, truncated)
