"""What holds for every single environment: the wrappers of users, repeated actions, limits, success, observations."""

import threading
import warnings
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rewardlab.config.schema import EnvConfig, WrapperConfig
from rewardlab.envs import checked
from rewardlab.envs.single import finish
from rewardlab.errors import ConfigError, DataError

HERE = __name__


class Counter(gymnasium.Env[Any, Any]):
    """Counts its steps; each is worth 1. `success` from step 3 on; ends at `end`."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}
    render_mode = "rgb_array"
    observation_space: spaces.Space[Any] = spaces.Box(0, 99, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, end: int = 99, success: bool = True) -> None:
        self.end, self.success, self.count = end, success, 0

    def observe(self) -> Any:
        return np.full(2, self.count, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        info = {"is_success": float(self.count >= 3)} if self.success else {}
        return self.observe(), 1.0, self.count == self.end, False, info

    def render(self) -> Any:
        return np.full((20, 30, 3), self.count, np.uint8)


def run(env: Any, steps: int = 99) -> list[tuple[Any, ...]]:
    env.reset(seed=0)
    rows: list[tuple[Any, ...]] = []
    while len(rows) < steps and not (rows and (rows[-1][2] or rows[-1][3])):
        rows.append(env.step(0))
    return rows


class Doubled(gymnasium.RewardWrapper[Any, Any]):
    def __init__(self, env: Any, times: int = 2) -> None:
        super().__init__(env)
        self.times = times

    def reward(self, reward: Any) -> Any:
        return self.times * reward


def test_actions_are_repeated_until_the_episode_ends() -> None:
    rows = run(finish(Counter(end=5), EnvConfig(id="Counter", action_repeat=2)))
    assert [row[1] for row in rows] == [2, 2, 1]
    assert [row[0][0] for row in rows] == [2, 4, 5]
    assert [row[2] for row in rows] == [False, False, True]


def test_the_limit_counts_steps_of_the_policy() -> None:
    rows = run(finish(Counter(), EnvConfig(id="Counter", action_repeat=3, max_episode_steps=4)))
    assert len(rows) == 4
    assert rows[-1][0][0] == 12
    assert (rows[-1][2], rows[-1][3]) == (False, True)


def test_success_that_is_held_ends_the_episode() -> None:
    rows = run(finish(Counter(), EnvConfig(id="Counter", success_hold_steps=4, max_episode_steps=6)))
    assert len(rows) == 6  # successes are steps 3, 4, 5, 6
    assert (rows[-1][2], rows[-1][3]) == (True, False)  # an end of its own, not a limit, at the same step
    assert len(run(finish(Counter(), EnvConfig(id="Counter", success_hold_steps=2, action_repeat=2)))) == 3


def test_a_sparse_reward_is_success() -> None:
    rows = run(finish(Counter(end=5), EnvConfig(id="Counter", reward="sparse", action_repeat=2)))
    assert [row[1] for row in rows] == [0, 1, 1]


@pytest.mark.parametrize("settings", [{"reward": "sparse"}, {"success_hold_steps": 2}])
def test_success_that_is_never_reported_is_an_error(settings: dict[str, Any]) -> None:
    key = next(iter(settings))
    with pytest.raises(DataError, match=f"env.train.{key}=.*'Counter' does not report success"):
        run(finish(Counter(end=5, success=False), EnvConfig(id="Counter", **settings)))


def test_wrappers_of_the_user_are_inside_of_everything_else() -> None:
    wrappers = (WrapperConfig(name=f"{HERE}:Doubled"), WrapperConfig(name=f"{HERE}:Doubled", options={"times": 5}))
    rows = run(finish(Counter(end=3), EnvConfig(id="Counter", action_repeat=2, wrappers=wrappers)))
    assert [row[1] for row in rows] == [20, 10]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("no_such_module:Doubled", {}, "env.train.wrappers: 'no_such_module:Doubled': importing"),
        (f"{HERE}:Doublet", {}, "Did you mean 'Doubled'"),
        (f"{HERE}:run", {}, "unknown wrapper of .* 'run'.*a class of gymnasium.Wrapper"),
        (f"{HERE}:Doubled", {"often": 2}, "Doubled' does not take these options: .*often"),
    ],
)
def test_a_wrapper_that_cannot_be_used_says_why(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        finish(Counter(), EnvConfig(id="Counter", wrappers=(WrapperConfig(name=name, options=options),)))


def test_the_name_of_a_wrapper_has_a_module() -> None:
    with pytest.raises(ValueError, match="module:name of a class"):
        WrapperConfig(name="Doubled")


class Batch(Counter):
    """One environment as simulators of batches show it: tensors with a leading axis."""

    num_envs = 1
    observation_space = spaces.Box(0, 99, (1, 2), np.float32)
    single_observation_space = spaces.Box(0, 99, (2,), np.float32)
    single_action_space = spaces.Discrete(2)

    def observe(self) -> Any:
        return torch.full((1, 2), float(self.count))

    def step(self, action: Any) -> Any:
        super().step(action)
        info = {"success": torch.tensor([self.count >= 3]), "more": {"pose": torch.zeros(1, 7)}}
        return self.observe(), torch.tensor([0.5]), torch.tensor([False]), torch.tensor([False]), info


def test_tensors_and_a_batch_of_one_become_plain_values() -> None:
    env = finish(Batch(), EnvConfig(id="Batch", success_hold_steps=2))
    assert env.observation_space.shape == (2,)
    rows = run(env)
    assert len(rows) == 4
    observation, reward, terminated, _, info = rows[-1]
    assert isinstance(observation, np.ndarray)
    assert (observation.shape, reward, terminated) == ((2,), 0.5, True)
    assert info["success"] is True
    assert isinstance(info["more"]["pose"], np.ndarray)
    assert info["more"]["pose"].shape == (7,)


def test_a_batch_of_several_is_refused() -> None:
    env = Batch()
    env.num_envs = 4
    with pytest.raises(ConfigError, match=r"a batch of 4 environments; expected one: env\.train\.num_envs"):
        finish(env, EnvConfig(id="Batch"))


def test_a_leading_axis_that_the_space_does_not_have_is_removed() -> None:
    env = Counter()
    env.observe = lambda: np.zeros((1, 2), np.float32)  # type: ignore[method-assign]
    assert finish(env, EnvConfig(id="Counter")).reset(seed=0)[0].shape == (2,)


class Mission(Counter):
    """Like MiniGrid: numbers, a small grid and a text."""

    observation_space = spaces.Dict(
        direction=spaces.Discrete(4), image=spaces.Box(0, 255, (2, 2, 3), np.uint8), mission=spaces.Text(20)
    )

    def observe(self) -> Any:
        return {"direction": 1, "image": np.full((2, 2, 3), 7, np.uint8), "mission": "go"}


def test_text_of_an_observation_is_left_out_and_said() -> None:
    with pytest.warns(UserWarning, match=r"'Grid': its observations are used without 'mission' \(Text\)"):
        env = finish(Mission(), EnvConfig(id="Grid"))
    observation = env.reset(seed=0)[0]
    assert observation.tolist() == [0, 1, 0, 0, *[7] * 12]


def test_an_observation_of_text_alone_is_refused() -> None:
    env = Counter()
    env.observation_space = spaces.Text(20)
    with pytest.raises(ConfigError, match="observations of 'Words' have no numbers: 'observation' \\(Text\\)"):
        finish(env, EnvConfig(id="Words"))


def test_parts_of_several_kinds_become_one_row() -> None:
    env = Counter()
    env.observation_space = spaces.Tuple([spaces.Discrete(3), spaces.MultiDiscrete([2, 2]), spaces.MultiBinary(2)])
    env.observe = lambda: (2, np.array([1, 0]), np.array([0, 1], np.int8))  # type: ignore[method-assign]
    assert finish(env, EnvConfig(id="Parts")).reset(seed=0)[0].tolist() == [0, 0, 1, 0, 1, 1, 0, 0, 1]


class Screen(Counter):
    """Like Atari: the observation is a picture."""

    observation_space = spaces.Box(0, 255, (40, 60, 3), np.uint8)

    def observe(self) -> Any:
        return np.full((40, 60, 3), 10 * self.count, np.uint8)


def test_a_picture_that_is_the_observation_is_that_of_the_camera() -> None:
    env = finish(Screen(), EnvConfig(id="Screen", cameras=("screen",)))
    env.reset(seed=0)
    observation = env.step(0)[0]
    assert observation["images"]["screen"].shape == (40, 60, 3)
    assert env.get_wrapper_attr("camera_names") == ("screen", "render")
    drawn = env.get_wrapper_attr("render_cameras")(("screen",), (8, 8))["screen"]
    assert drawn.shape == (8, 8, 3)
    assert (drawn == 10).all()
    small = finish(Screen(), EnvConfig(id="Screen", obs_mode="images", image_size=(3, 16, 24)))
    assert small.reset(seed=0)[0]["images"]["base_camera"].shape == (16, 24, 3)


@pytest.mark.parametrize(
    ("shape", "obs_mode", "message"),
    [
        ((4, 84, 84), "state", r"pictures of shape \[4, 84, 84\]; expected 3 colours"),
        ((40, 60, 3), "state+images", "the observation of 'Screen' is a picture, with no state beside it"),
    ],
)
def test_pictures_that_cannot_be_used_are_refused(shape: Any, obs_mode: Any, message: str) -> None:
    env = Screen()
    env.observation_space = spaces.Box(0, 255, shape, np.uint8)
    with pytest.raises(ConfigError, match=message):
        finish(env, EnvConfig(id="Screen", obs_mode=obs_mode))


class TwoCameras(Counter):
    camera_names = ("front", "wrist")

    def render_cameras(self, cameras: tuple[str, ...], image_size: Any) -> dict[str, Any]:
        return {camera: np.full((*image_size, 3), 10 * len(camera), np.uint8) for camera in cameras}


def test_several_cameras_in_the_observation() -> None:
    config = EnvConfig(id="Two", obs_mode="state+images", cameras=("wrist", "front"), image_size=(3, 8, 16))
    env = finish(TwoCameras(), config)
    observation = env.reset(seed=0)[0]
    assert env.observation_space.contains(observation)
    assert observation["images"]["wrist"].shape == (8, 16, 3)
    with pytest.raises(ConfigError, match="unknown camera of 'Two' 'side'"):
        finish(TwoCameras(), EnvConfig(id="Two", obs_mode="images", cameras=("side",)))


def test_an_episode_that_does_not_end_is_an_error_unless_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "MOST_STEPS", 1_000)
    endless = finish(Counter(end=0), EnvConfig(id="mine"))
    with pytest.raises(DataError, match=r"'mine' names no time limit.* 1,000 steps.*set env\.train\.max_episode_steps"):
        run(endless, 1_001)
    assert len(run(finish(Counter(end=1_000), EnvConfig(id="mine")), 1_001)) == 1_000
    assert len(run(finish(Counter(end=0), EnvConfig(id="mine", max_episode_steps=1_005)), 1_010)) == 1_005
    inner = Counter(end=0)
    inner.spec = gymnasium.envs.registration.EnvSpec("mine", kwargs={"handle": threading.Lock()})
    for limited in (gymnasium.wrappers.TimeLimit(Counter(end=0), 1_005), gymnasium.wrappers.TimeLimit(inner, 1_005)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium's: it cannot copy the spec of the second
            assert len(run(finish(limited, EnvConfig(id="mine")), 1_010)) == 1_005


def test_an_episode_may_be_as_long_as_those_of_atari() -> None:
    """108,000 frames, four to a step; Gymnasium does not know of that limit."""
    assert len(run(finish(Counter(end=27_000), EnvConfig(id="ALE/Breakout-v5")), 27_001)) == 27_000


def test_an_environment_that_cannot_be_finished_is_closed() -> None:
    env, closed = Counter(), []
    env.close = lambda: closed.append(True)  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="unknown wrapper"):
        finish(env, EnvConfig(id="mine", wrappers=(WrapperConfig(name="gymnasium.wrappers:Nope"),)))
    assert closed == [True]
