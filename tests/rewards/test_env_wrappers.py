"""Learned rewards through Gymnasium: every number by hand, in every mode, and no frame in the wrong episode."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from env_toys import AFTER_RESET, LampEnv, LampReader
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from reward_toys import make_frames, small_resnet

from rewardlab.config.schema import RewardConfig, RewardModelConfig
from rewardlab.data import read_episodes
from rewardlab.envs.tabletop import TabletopVectorEnv
from rewardlab.envs.wrappers import DataCollectorWrapper, RewardModelVectorWrapper, RewardModelWrapper
from rewardlab.errors import ConfigError, DataError
from rewardlab.rewards import BaseRewardModel, RewardManager, with_rewards

SAME, NEXT, DISABLED = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED


def play(env: gymnasium.Env[Any, Any], steps: int) -> tuple[list[float], list[dict[str, Any]]]:
    """Rewards and infos of an agent that resets where an episode ends."""
    rewards, infos = [], []
    env.reset(seed=0)
    for _ in range(steps):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        rewards.append(float(reward))
        infos.append(info)
        if terminated or truncated:
            env.reset()
    return rewards, infos


@pytest.mark.parametrize("kind", ["image", "images", "cameras", "render"])
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0, 0, 1]),
        ({"reward_threshold": 0.15}, [0, 1, 1]),
        ({"reward_type": "continuous", "success_reward": 10.0}, [1, 2, 6]),
        ({"combine_mode": "add", "reward_weight": 10.0}, [1, 2, 13]),
        ({"combine_mode": "weighted", "env_reward_weight": 0.5, "fail_reward": -1.0}, [-0.5, 0, 2.5]),
        ({"reward_mode": "terminal", "fail_reward": -1.0}, [0, 0, 1]),
        ({"reward_mode": "terminal", "combine_mode": "add", "reward_type": "continuous"}, [1, 2, 3.6]),
    ],
)
def test_rewards_of_one_environment_by_hand(kind: str, settings: dict[str, Any], expected: list[float]) -> None:
    model = LampReader()
    env = RewardModelWrapper(LampEnv(kind=kind), model, **settings)
    rewards, infos = play(env, 6)
    assert rewards == pytest.approx(expected * 2)
    assert [info["env_reward"] for info in infos] == [1, 2, 3] * 2
    terminal = settings.get("reward_mode") == "terminal"
    assert model.shown == ([60] if terminal else [10, 20, 60]) * 2
    assert [info.get("reward_model/prob") for info in infos] == pytest.approx(
        ([None, None, 0.6] if terminal else [0.1, 0.2, 0.6]) * 2
    )
    if kind in ("cameras", "render"):
        assert env.unwrapped.drawn == len(model.shown)  # type: ignore[attr-defined]


def lamps(mode: AutoresetMode, kind: str = "image", **options: Any) -> SyncVectorEnv:
    return SyncVectorEnv([lambda i=i: LampEnv(i, kind, **options) for i in range(2)], autoreset_mode=mode)  # type: ignore[misc]


PER_STEP = ([0.1, 0.2, 0.6, 0.1, 0.2, 0.6], [0.1, 0.3, 0.1, 0.3, 0.1, 0.3])
TERMINAL = ([0, 0, 0.6, 0, 0, 0.6], [0, 0.3, 0, 0.3, 0, 0.3])
EXPECTED = {
    (SAME, "per_step"): PER_STEP,
    (DISABLED, "per_step"): PER_STEP,
    (NEXT, "per_step"): ([0.1, 0.2, 0.6, 0, 0.1, 0.2], [0.1, 0.3, 0, 0.1, 0.3, 0]),  # 0: the step that resets
    (SAME, "terminal"): TERMINAL,
    (DISABLED, "terminal"): TERMINAL,
    (NEXT, "terminal"): ([0, 0, 0.6, 0, 0, 0], [0, 0.3, 0, 0, 0.3, 0]),
}


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize(
    ("mode", "reward_mode", "kind"),
    # The last frame is gone for render() in SAME_STEP: see test_a_picture_that_is_gone_is_refused.
    [(*key, kind) for key in EXPECTED for kind in ("image", "images", "render") if (key[0], kind) != (SAME, "render")],
)
def test_rewards_of_a_vector_environment_by_hand(
    mode: AutoresetMode, reward_mode: str, kind: str, truncates: bool
) -> None:
    model = LampReader()
    inner = lamps(mode, kind, truncates=truncates)
    env = RewardModelVectorWrapper(inner, model, reward_mode=reward_mode, reward_type="continuous")
    env.reset(seed=0)
    rewards, probabilities, own = [], [], []
    for _ in range(6):
        _, reward, terminated, truncated, infos = env.step(np.zeros(2, int))
        rewards.append(reward)
        own.append(infos["env_reward"].tolist())
        scored = infos["_reward_model/prob"]
        probabilities += infos["reward_model/prob"][scored].tolist()
        assert np.isnan(infos["reward_model/prob"][~scored]).all()
        if mode == DISABLED and (terminated | truncated).any():
            env.reset(options={"reset_mask": terminated | truncated})
    np.testing.assert_allclose(np.stack(rewards, axis=1), EXPECTED[mode, reward_mode], rtol=1e-6)
    assert AFTER_RESET not in model.shown
    assert probabilities == pytest.approx([shown / 100 for shown in model.shown])
    assert len(model.shown) == np.count_nonzero(EXPECTED[mode, reward_mode])
    assert own[0] == [1, 1]
    assert own[2] == [3, {SAME: 1, DISABLED: 1, NEXT: 0}[mode]]


def test_an_episode_that_goes_on_after_its_end_is_paid_once() -> None:
    """An environment with a time limit says `truncated` in every further step."""
    env = RewardModelVectorWrapper(
        TabletopVectorEnv(num_envs=1, max_episode_steps=2, autoreset_mode=DISABLED),
        LampReader(),
        reward_mode="terminal",
        reward_type="continuous",
    )
    env.reset(seed=0)
    rewards = [float(env.step(np.zeros((1, 4), np.float32))[1][0]) for _ in range(4)]
    assert [reward > 0 for reward in rewards] == [False, True, False, False]


@pytest.mark.parametrize("reward_mode", ["per_step", "terminal"])
def test_a_frame_that_the_model_calls_a_success_may_end_the_episode(reward_mode: str) -> None:
    """The lamp is at 10, 20, 60 in the first environment; above 15 is a success, so that its second step ends it."""
    model, settings = LampReader(), {"reward_mode": reward_mode, "reward_threshold": 0.15}
    manager = RewardManager(
        model,
        RewardConfig(**settings),
        {model.model_type: RewardModelConfig(ends_episode=True)},  # type: ignore[arg-type]
    )
    env = RewardModelWrapper(LampEnv(), manager)
    env.reset()
    steps = [env.step(0)[1:3] for _ in range(2)]
    assert steps == [(0, False), (1, True)]
    vector = RewardModelVectorWrapper(lamps(DISABLED), manager)
    vector.reset(seed=0)
    ends = []
    for _ in range(2):
        _, reward, terminated, _, _ = vector.step(np.zeros(2, int))
        ends.append((reward.tolist(), terminated.tolist()))
    assert ends == [([0, 0], [False, False]), ([1, 1], [True, True])]
    with pytest.raises(ConfigError, match="ends_episode: found true, but this vector environment resets itself"):
        RewardModelVectorWrapper(lamps(SAME), manager)
    with pytest.raises(ConfigError, match="ends_episode: found true for '', which gives no probability of success"):
        RewardManager(Brightening(), RewardConfig(), {"": RewardModelConfig(ends_episode=True)})


class Watched(TabletopVectorEnv):
    def render_cameras(self, *arguments: Any, **which: Any) -> Any:
        frames = super().render_cameras(*arguments, **which)
        self.drawn = [*getattr(self, "drawn", []), (which["final"], len(which["env_ids"]))]
        return frames


def test_terminal_mode_draws_the_true_last_frames_and_no_other() -> None:
    inner = Watched(num_envs=3, max_episode_steps=5)
    env = RewardModelVectorWrapper(inner, LampReader(), reward_mode="terminal")
    env.reset(seed=0)
    for _ in range(11):
        env.step(env.action_space.sample())
    assert inner.drawn == [(True, 3), (True, 3)]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    model = small_resnet()
    model.network.train()(make_frames(16)[0])
    model.network.eval()
    model.threshold = 0.25
    return model.save(tmp_path / "model")


def test_two_lines_with_a_checkpoint_and_the_built_in_task(checkpoint: Path) -> None:
    env = RewardModelWrapper(gymnasium.make("tabletop/PickCube"), checkpoint, reward_type="continuous")
    assert env.manager.threshold == 0.25
    env.reset(seed=0)
    _, reward, _, _, info = env.step(env.action_space.sample())
    picture = env.unwrapped.render_cameras(("base_camera",), (32, 32))["base_camera"]  # type: ignore[attr-defined]
    assert reward == pytest.approx(float(env.manager.model.probabilities(picture[None])[0]), abs=1e-6)  # type: ignore[attr-defined]
    assert reward == info["reward_model/prob"]
    assert info["env_reward"] == info["dense_reward"]


def test_one_manager_serves_many_environments() -> None:
    manager = RewardManager(LampReader(), RewardConfig(reward_type="continuous"))
    assert play(RewardModelWrapper(LampEnv(0), manager), 3)[0] == pytest.approx([0.1, 0.2, 0.6])
    assert play(RewardModelWrapper(LampEnv(1), manager), 2)[0] == pytest.approx([0.1, 0.3])


def test_a_config_is_followed_and_may_be_changed_by_keyword(checkpoint: Path) -> None:
    config = RewardConfig(reward_weight=2.0, model=RewardModelConfig(checkpoint_path=str(checkpoint)))
    env = RewardModelWrapper(gymnasium.make("tabletop/PickCube"), config, reward_mode="terminal")
    assert env.manager.config.reward_weight == 2.0
    assert env.manager.config.reward_mode == "terminal"


@pytest.mark.parametrize("wrapped", ["lamp", "tabletop", "terminal"])
def test_gymnasiums_own_checks_pass(wrapped: str, checkpoint: Path) -> None:
    if wrapped == "lamp":
        env = RewardModelWrapper(LampEnv(kind="render"), LampReader())
    else:
        mode = "terminal" if wrapped == "terminal" else "per_step"
        inner = gymnasium.make("tabletop/PickCube", render_mode="rgb_array", disable_env_checker=True)
        env = RewardModelWrapper(inner, str(checkpoint), reward_mode=mode)
        assert env.spec is not None
        assert isinstance(gymnasium.make(env.spec), RewardModelWrapper)
    check_env(env, skip_render_check=True)


class TestFaults:
    def test_a_camera_that_the_environment_does_not_have(self) -> None:
        model = LampReader(image_keys=("side_camera",))
        with pytest.raises(DataError, match="no camera 'side_camera': the environment has base_camera, wrist_camera"):
            RewardModelWrapper(gymnasium.make("tabletop/PickCube"), model)
        with pytest.raises(DataError, match="no camera 'side_camera': the environment has base_camera"):
            RewardModelVectorWrapper(lamps(SAME, "images"), model)

    def test_an_environment_without_pictures(self) -> None:
        with pytest.raises(DataError, match=r"has neither render_cameras nor pictures.*render_mode='rgb_array'"):
            RewardModelWrapper(gymnasium.make("CartPole-v1"), LampReader())

    def test_a_picture_that_is_gone_is_refused(self) -> None:
        """render() shows the new episode when a vector environment has reset in the same step."""
        with pytest.raises(DataError, match="cannot show the last frame of an episode"):
            RewardModelVectorWrapper(lamps(SAME, "render"), LampReader())

    def test_two_cameras_are_not_one_picture(self) -> None:
        with pytest.raises(DataError, match="no camera 'left'"):
            RewardModelWrapper(LampEnv(kind="render"), LampReader(image_keys=("left", "right")))

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"reward_mod": "terminal"}, "Did you mean 'reward.reward_mode'"),
            ({"reward_mode": "terminl"}, "Did you mean 'terminal'"),
            ({"reward_threshold": 2.0}, "reward.reward_threshold"),
        ],
    )
    def test_settings_are_checked_as_in_a_config(self, settings: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            RewardModelWrapper(LampEnv(), LampReader(), **settings)

    def test_settings_beside_a_manager(self) -> None:
        with pytest.raises(ConfigError, match="found reward_mode with a RewardManager, which has its own config"):
            RewardModelWrapper(LampEnv(), RewardManager(LampReader(), RewardConfig()), reward_mode="terminal")

    def test_a_checkpoint_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"checkpoint_path: there is no file or directory .*nothing"):
            RewardModelWrapper(LampEnv(), tmp_path / "nothing")


class Brightening(BaseRewardModel):
    """Not a classifier: how much brighter it became, by the states before and after; asks for the action too."""

    def estimate(self, data: Any) -> Any:
        gain = data["next_observation", "state"] - data["observation", "state"]
        assert len(data["action"]) == len(gain)
        return with_rewards(data, gain[..., 0])

    def train(self) -> None: ...
    def collect_data(self, data: Any) -> None: ...
    def clear_data(self, iter: int) -> None: ...


@pytest.mark.parametrize("mode", [SAME, NEXT])
def test_other_reward_models_see_whole_transitions(mode: AutoresetMode) -> None:
    env = RewardModelVectorWrapper(lamps(mode, "state"), Brightening())
    env.reset(seed=0)
    steps = [env.step(np.zeros(2, int)) for _ in range(4)]
    rewards = np.stack([step[1] for step in steps], axis=1)
    expected = {
        SAME: [[-0.8, 0.1, 0.4, -0.8], [-0.8, 0.2, -0.8, 0.2]],
        NEXT: [[-0.8, 0.1, 0.4, 0], [-0.8, 0.2, 0, -0.8]],
    }[mode]
    np.testing.assert_allclose(rewards, expected, atol=1e-6)
    assert steps[0][4]["reward_model/estimate"].tolist() == pytest.approx([-0.8, -0.8])
    single = RewardModelWrapper(LampEnv(kind="state"), Brightening(), reward_mode="terminal")
    assert play(single, 3)[0] == pytest.approx([0, 0, 0.4])


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.filterwarnings("ignore:.*every frame is labelled a failure")
def test_collected_episodes_keep_the_environments_reward(tmp_path: Path, outside: bool) -> None:
    """Whether one wrapper is around all environments or one around each."""
    model = LampReader()
    if outside:
        env: Any = RewardModelVectorWrapper(lamps(SAME), model)
    else:
        env = SyncVectorEnv([lambda: RewardModelWrapper(LampEnv(), model)] * 2, autoreset_mode=SAME)
    with DataCollectorWrapper(env, tmp_path, max_episodes=1) as collecting:
        collecting.reset(seed=0)
        while not collecting.full:
            collecting.step(np.zeros(2, int))
    columns = read_episodes(tmp_path)[0].load().columns
    assert columns["env_reward"].tolist() in ([0, 1, 2, 3], [0, 1, 2])
    assert columns["reward"].tolist() in ([0, 0, 0, 1], [0, 0, 0])


def test_the_built_in_task_is_drawn_at_the_recorded_size() -> None:
    """The network works at 32x32, but the frames that it was trained on had been recorded at 48x48."""
    model = small_resnet()
    model.set_frame_sizes({"base_camera": (48, 48)})
    env = RewardModelWrapper(gymnasium.make("tabletop/PickCube"), model, reward_type="continuous")
    env.reset(seed=0)
    _, reward, _, _, _ = env.step(env.action_space.sample())
    pictures = [env.unwrapped.render_cameras(("base_camera",), (n, n))["base_camera"][None] for n in (48, 96)]  # type: ignore[attr-defined]
    assert reward == pytest.approx(float(model.probabilities(pictures[0])[0]), abs=1e-6)
    # A larger picture is reduced to nearly the same; one of the network's size would not be.
    assert float(model.probabilities(pictures[1])[0]) == pytest.approx(reward, abs=0.02)
    with pytest.raises(DataError, match=r"are 32x32; .*recorded at 48x48\. They are smaller"):
        model.probabilities(pictures[0][:, :32, :32])


def test_pictures_smaller_than_the_recorded_ones_are_refused() -> None:
    model = small_resnet()  # of 32x32; the lamp's pictures have 8x8
    env = RewardModelWrapper(LampEnv(), model)
    env.reset()
    with pytest.raises(DataError, match=r"'base_camera' are 8x8; .*32x32.*smaller.*resize=allow"):
        env.step(0)
    allowed = RewardModelWrapper(LampEnv(), small_resnet(resize="allow"))
    allowed.reset()
    allowed.step(0)
