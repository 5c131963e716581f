"""Learned rewards of a whole VecEnv of Stable-Baselines3: as one wrapper around each environment would give."""

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from env_toys import AFTER_RESET, EPISODES, LampEnv, LampReader
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecEnv,
    VecEnvWrapper,
    VecMonitor,
    VecTransposeImage,
)

from rewardlab.config.schema import RewardConfig, RewardModelConfig
from rewardlab.envs import wrappers
from rewardlab.envs.tabletop import TabletopEnv
from rewardlab.envs.wrappers import LastFrameWrapper, RewardModelVecEnvWrapper, RewardModelWrapper
from rewardlab.errors import ConfigError, DataError
from rewardlab.rewards import BaseRewardModel, ResNetRewardModel, RewardManager, with_rewards

PER_STEP = ([0.1, 0.2, 0.6, 0.1, 0.2, 0.6], [0.1, 0.3, 0.1, 0.3, 0.1, 0.3])
TERMINAL = ([0, 0, 0.6, 0, 0, 0.6], [0, 0.3, 0, 0.3, 0, 0.3])
NOTHING = np.zeros(2, int)


class FlatLamp(LampEnv):
    """A dictionary with the picture beside the state: Stable-Baselines3 knows no dictionaries in dictionaries."""

    def __init__(self, index: int, truncates: bool = False) -> None:
        super().__init__(index, "images", truncates)
        parts = self.observation_space.spaces  # type: ignore[attr-defined]
        self.observation_space = spaces.Dict({"state": parts["state"], **parts["images"].spaces})

    def _observe(self) -> Any:
        whole = super()._observe()
        return {"state": whole["state"], **whole["images"]}


def lamp(kind: str, index: int, truncates: bool) -> Any:
    if kind == "dict":
        return FlatLamp(index, truncates)
    if kind in ("image", "transposed"):
        return LampEnv(index, "image", truncates)
    return LastFrameWrapper(LampEnv(index, kind, truncates))


def lamps(kind: str = "image", truncates: bool = False) -> VecEnv:
    venv = DummyVecEnv([lambda i=i: lamp(kind, i, truncates) for i in range(2)])  # type: ignore[misc]
    return VecTransposeImage(venv) if kind == "transposed" else venv


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("mode", ["per_step", "terminal"])
@pytest.mark.parametrize("kind", ["image", "transposed", "dict", "cameras", "render"])
def test_rewards_by_hand(kind: str, mode: str, truncates: bool) -> None:
    model = LampReader()
    venv = RewardModelVecEnvWrapper(lamps(kind, truncates), model, reward_mode=mode, reward_type="continuous")
    venv.reset()
    rewards, own, scores = [], [], []
    for _ in range(6):
        _, reward, dones, infos = venv.step(NOTHING)
        rewards.append(reward)
        own.append([info["env_reward"] for info in infos])
        scores += [info["reward_model/prob"] for info in infos if "reward_model/prob" in info]
        for done, info in zip(dones, infos, strict=True):
            assert ("terminal_observation" in info) == done
            assert info["TimeLimit.truncated"] == (done and truncates)
            assert "last_frames" not in info
    expected = {"per_step": PER_STEP, "terminal": TERMINAL}[mode]
    np.testing.assert_allclose(np.stack(rewards, axis=1), expected, rtol=1e-6)
    assert reward.dtype == np.float32
    assert np.transpose(own).tolist() == [[1, 2, 3, 1, 2, 3], [1, 2, 1, 2, 1, 2]]
    assert AFTER_RESET not in model.shown
    assert scores == pytest.approx([shown / 100 for shown in model.shown])
    assert len(scores) == np.count_nonzero(expected)
    if kind in ("cameras", "render"):
        extra = 0 if mode == "terminal" else 6 - np.count_nonzero(TERMINAL[0])
        assert venv.unwrapped.envs[0].unwrapped.drawn == np.count_nonzero(TERMINAL[0]) + extra  # type: ignore[attr-defined]


def small_model() -> ResNetRewardModel:
    torch.manual_seed(0)
    return ResNetRewardModel(arch="resnet10", image_size=(3, 32, 32), hidden_dim=8, width=8)


def table(steps: int = 5) -> gymnasium.Env[Any, Any]:
    return TimeLimit(TabletopEnv(), steps)


@pytest.mark.parametrize("settings", [{}, {"reward_mode": "terminal", "combine_mode": "add"}])
def test_rewards_equal_those_of_a_wrapper_around_each_environment(settings: dict[str, Any]) -> None:
    model, settings = small_model(), {"reward_type": "continuous", **settings}
    model.set_frame_sizes({"base_camera": (40, 40)})
    each = DummyVecEnv([lambda: RewardModelWrapper(table(), model, **settings)] * 3)
    together = RewardModelVecEnvWrapper(DummyVecEnv([lambda: LastFrameWrapper(table())] * 3), model, **settings)
    observed, rewards = [], []
    for venv in (each, together):
        venv.seed(3)
        rng, steps = np.random.default_rng(0), []
        observed.append(venv.reset())
        for _ in range(12):
            steps.append(venv.step(rng.uniform(-1, 1, (3, 4)).astype(np.float32)))
        rewards.append(np.stack([step[1] for step in steps]))
        assert np.stack([step[2] for step in steps]).sum() == 6
    assert np.array_equal(*observed)
    assert rewards[0].std() > 0
    np.testing.assert_allclose(*rewards, atol=1e-6)


def test_tables_drawn_together_look_as_drawn_one_by_one() -> None:
    envs = [TabletopEnv(task="PickCube") for _ in range(3)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    for tasks in (envs, [*envs, TabletopEnv(task="PegInsertion")]):
        tasks[-1].reset(seed=9)
        together = TabletopEnv.render_together(tasks, ("base_camera",), (32, 32))["base_camera"]
        for env, picture in zip(tasks, together, strict=True):
            assert np.array_equal(picture, env.render_cameras(("base_camera",), (32, 32))["base_camera"])


def test_processes_draw_and_this_one_scores() -> None:
    model = LampReader()
    venv = SubprocVecEnv([lambda i=i: lamp("cameras", i, False) for i in range(2)], start_method="fork")  # type: ignore[misc]
    rewarded = RewardModelVecEnvWrapper(venv, model, reward_type="continuous")
    try:
        rewarded.reset()
        rewards = np.stack([rewarded.step(NOTHING)[1] for _ in range(6)], axis=1)
    finally:
        rewarded.close()
    np.testing.assert_allclose(rewards, PER_STEP, rtol=1e-6)


class Brightening(BaseRewardModel):
    """How much brighter it became, by the states before and after, plus the action."""

    def estimate(self, data: Any) -> Any:
        gain = data["next_observation", "state"] - data["observation", "state"]
        return with_rewards(data, gain[..., 0] + data["action"])

    def train(self) -> None: ...
    def collect_data(self, data: Any) -> None: ...
    def clear_data(self, iter: int) -> None: ...


def test_models_over_transitions_see_the_true_last_observation() -> None:
    venv = RewardModelVecEnvWrapper(lamps("cameras"), Brightening())
    venv.reset()
    steps = [venv.step(np.array([0, 1])) for _ in range(4)]
    rewards = np.stack([step[1] for step in steps], axis=1)
    np.testing.assert_allclose(rewards, [[-0.8, 0.1, 0.4, -0.8], [0.2, 1.2, 0.2, 1.2]], atol=1e-6)
    assert steps[0][3][0]["reward_model/estimate"] == pytest.approx(-0.8)


def test_ppo_learns_from_it_and_a_monitor_outside_reports_it() -> None:
    venv = RewardModelVecEnvWrapper(lamps("cameras"), LampReader(), reward_type="continuous", success_reward=10.0)
    agent = PPO("MlpPolicy", VecMonitor(venv), n_steps=60, batch_size=40, n_epochs=2, seed=0, device="cpu")
    agent.learn(120)
    expected = [np.tile([10 * brightness / 100 for brightness in episode], 60)[:60] for episode in EPISODES]
    np.testing.assert_allclose(agent.rollout_buffer.rewards.T, expected, rtol=1e-6)
    assert agent.ep_info_buffer is not None
    assert {episode["r"] for episode in agent.ep_info_buffer} == {9.0, 4.0}  # the environment's own are 6 and 3


def test_sac_learns_from_it() -> None:
    venv = DummyVecEnv([lambda: LastFrameWrapper(table())] * 2)
    venv = RewardModelVecEnvWrapper(venv, small_model(), reward_type="continuous")
    agent = SAC("MlpPolicy", venv, learning_starts=20, batch_size=16, buffer_size=100, seed=0, device="cpu")
    before = [weight.clone() for weight in agent.actor.parameters()]
    agent.learn(60)
    assert any((a != b).any() for a, b in zip(before, agent.actor.parameters(), strict=True))
    stored = agent.replay_buffer.rewards[: agent.replay_buffer.pos]  # type: ignore[union-attr]
    assert ((stored > 0) & (stored < 1)).all()  # the environment's own may be negative


def test_the_environments_can_still_be_asked_and_told() -> None:
    venv = RewardModelVecEnvWrapper(lamps("cameras"), LampReader())
    assert venv.get_attr("kind") == ["cameras", "cameras"]
    assert venv.seed(5) == [5, 6]
    venv.reset()
    assert len(venv.env_method("render_cameras", ("base_camera",))) == 2
    assert venv.render_mode is None
    assert isinstance(venv, VecEnvWrapper)


class Forgetful(VecEnvWrapper):
    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        obs, rewards, dones, infos = self.venv.step_wait()
        return obs, rewards, dones, [{} for _ in infos]


class TestFaults:
    def test_an_episode_that_the_environment_did_not_end_cannot_be_ended(self) -> None:
        model = LampReader()
        manager = RewardManager(model, RewardConfig(), {model.model_type: RewardModelConfig(ends_episode=True)})
        with pytest.raises(
            ConfigError, match=r"ends_episode: found true.*wrap the single environments with RewardModel"
        ):
            RewardModelVecEnvWrapper(lamps(), manager)

    @pytest.mark.parametrize("kind", ["cameras", "render"])
    def test_drawn_pictures_need_the_last_frame(self, kind: str) -> None:
        venv = DummyVecEnv([lambda: LampEnv(0, kind)])
        with pytest.raises(DataError, match=r"no camera 'base_camera'.*in a LastFrameWrapper"):
            RewardModelVecEnvWrapper(venv, LampReader())

    def test_a_time_limit_outside_of_the_last_frame(self) -> None:
        venv = DummyVecEnv([lambda: TimeLimit(LastFrameWrapper(LampEnv(0, "cameras")), 2)])
        rewarded = RewardModelVecEnvWrapper(venv, LampReader())
        rewarded.reset()
        rewarded.step(NOTHING[:1])
        with pytest.raises(
            DataError, match="environment 0 ended an episode, but its LastFrameWrapper did not see that"
        ):
            rewarded.step(NOTHING[:1])

    def test_a_camera_that_render_is_not(self) -> None:
        venv = DummyVecEnv([lambda: LastFrameWrapper(LampEnv(0, "state"))])
        rewarded = RewardModelVecEnvWrapper(venv, LampReader())
        rewarded.reset()
        with pytest.raises(DataError, match=r"cameras base_camera: the environment has no render_cameras"):
            rewarded.step(NOTHING[:1])

    def test_a_vec_env_without_last_observations(self) -> None:
        rewarded = RewardModelVecEnvWrapper(Forgetful(lamps()), LampReader())
        rewarded.reset()
        rewarded.step(NOTHING)
        with pytest.raises(
            DataError, match="environment 1 ended an episode, but its info has no 'terminal_observation'"
        ):
            rewarded.step(NOTHING)

    def test_without_stable_baselines3(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "stable_baselines3.common.vec_env", None)
        monkeypatch.delitem(sys.modules, "rewardlab.rewards.sb3_wrapper")
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'rewardlab\[sb3\]'"):
            wrappers.RewardModelVecEnvWrapper  # noqa: B018
