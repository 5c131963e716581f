"""The frame that followed an action, and its success, where an environment resets in the same step."""

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rewardlab.config.schema import EnvConfig
from rewardlab.envs import make_vec_env
from rewardlab.envs.gym import make_one
from rewardlab.envs.step_results import CameraFrames, following_success, success_of
from rewardlab.envs.tabletop import TabletopVectorEnv
from rewardlab.envs.wrappers import DataCollectorWrapper
from rewardlab.errors import DataError
from rewardlab.frame_sizes import FrameSize
from rewardlab.observations import final_rows
from rewardlab.rl.evaluation import Evaluation
from rewardlab.workers.env import EnvWorker


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


@pytest.mark.parametrize("key", ["success", "is_success", "succeed"])
def test_success_goes_with_the_frame(key: str) -> None:
    ended = np.array([False, True, True, False])
    beside = {key: np.array([True, True, False, True]), f"_{key}": np.array([True, True, True, False])}
    assert success_of(beside, 4).tolist() == [True, True, False, False]
    assert following_success(beside, ended).tolist() == [True, True, False, False]
    last = {key: np.array([False, False, True, True]), f"_{key}": ended}
    infos = {**beside, "final_obs": np.full(4, None, object), "final_info": last}
    assert following_success(infos, ended).tolist() == [True, False, True, False]
    del infos["final_info"]
    with pytest.raises(DataError, match="gives no infos\\['final_info'\\]"):
        following_success(infos, ended)


ODD = [float("nan"), float("inf"), "yes", None, [1, 2], {}]


class OddSuccess(gymnasium.Env[Any, Any]):
    """Says `value` of its third step, and nothing strange before it; episodes last four steps."""

    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)

    def __init__(self, value: Any = False) -> None:
        self.value = value

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return np.zeros(2, np.float32), {"success": False}

    def step(self, action: Any) -> Any:
        self.time += 1
        info = {"success": self.value if self.time == 3 else False}
        return np.zeros(2, np.float32), 0.0, False, self.time == 4, info


gymnasium.register("OddSuccess-v0", OddSuccess)


@pytest.mark.parametrize("value", ODD, ids=str)
def test_a_success_that_is_neither_a_boolean_nor_a_number_is_an_error(value: Any, tmp_path: Path) -> None:
    cfg = EnvConfig(id="OddSuccess-v0", num_envs=2, cameras=(), options={"value": value})
    words = r"'OddSuccess-v0', env(ironment)? 0, step 3.*: info\['success'\] .*expected"
    worker = EnvWorker(cfg, seed=0)
    collector = DataCollectorWrapper(make_vec_env(cfg), tmp_path, cameras=(), task=cfg.id)
    for begin, step in ((lambda: worker.begin(0), worker.step), (collector.reset, collector.step)):
        begin()
        for _ in range(2):
            step(np.zeros(2, np.int64))
        with pytest.raises(DataError, match=words):
            step(np.zeros(2, np.int64))
    with pytest.raises(DataError, match=words):
        Evaluation(cfg, seed=0).run(AlwaysZero())


class AlwaysZero(torch.nn.Module):
    def act(self, observation: Any, *_: Any, **__: Any) -> dict[str, torch.Tensor]:
        return {"action": torch.zeros(len(observation), dtype=torch.int64)}


@pytest.mark.parametrize(
    ("value", "success"), [(1, True), (0.5, True), (0.49, False), (2.0, True), (-1, False), (np.bool_(True), True)]
)
def test_numbers_from_a_half_on_are_a_success(value: Any, success: bool) -> None:
    env = make_vec_env("OddSuccess-v0", num_envs=2, cameras=(), options={"value": value})
    env.reset()
    env.step(np.zeros(2, np.int64))
    env.step(np.zeros(2, np.int64))
    infos = env.step(np.zeros(2, np.int64))[-1]
    assert success_of(infos, 2).tolist() == [success] * 2
    assert success_of({"success": torch.full((2, 1), float(value))}, 2).tolist() == [success] * 2


def test_a_success_for_another_number_of_environments_is_an_error() -> None:
    with pytest.raises(DataError, match=r"info\['success'\] has shape \[3\]; expected one value for each of the 2"):
        success_of({"success": np.ones(3, bool)}, 2)


def test_rows_of_an_array_of_observations_and_nones() -> None:
    final_obs = np.full(3, None, object)
    final_obs[0] = {"state": np.zeros(2), "images": {"base_camera": np.ones((4, 4, 3), np.uint8)}}
    final_obs[2] = {"state": np.ones(2), "images": {"base_camera": np.zeros((4, 4, 3), np.uint8)}}
    rows = final_rows(final_obs, np.array([2, 0]))
    assert rows["state"].tolist() == [[1, 1], [0, 0]]
    assert rows["images"]["base_camera"][:, 0, 0, 0].tolist() == [0, 1]


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


def test_an_environment_that_resets_in_the_same_step_without_saying_so_is_refused() -> None:
    env: VectorEnv[Any, Any, Any] = TabletopVectorEnv(max_episode_steps=1)
    env.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
    env.reset(seed=0)
    obs, _, _, truncated, infos = env.step(np.zeros((1, 4), np.float32))
    with pytest.raises(DataError, match="metadata do not say so"):
        CameraFrames(env, ("base_camera",)).following(obs, infos, truncated)
