"""One door to every environment."""

from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from rewardlab.config.schema import EnvConfig
from rewardlab.envs import make_vec_env
from rewardlab.envs.policies import make_policy
from rewardlab.envs.tabletop import TabletopVectorEnv
from rewardlab.errors import ConfigError
from rewardlab.observations import as_observation


class Counter(gymnasium.Env[Any, Any]):
    """Counts to five; its picture is as bright as its count."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}
    observation_space = spaces.Discrete(6)
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return self.count, 1.0, self.count == 5, False, {"is_success": self.count == 5}

    def render(self) -> np.ndarray:
        return np.full((100, 150, 3), 50 * self.count, np.uint8)


gymnasium.register("test/Counter", entry_point=Counter)


class Reach(gymnasium.Env[Any, Any]):
    """As environments of Gymnasium-Robotics look: one, in double precision, with goals in a dictionary."""

    observation_space = spaces.Dict(
        {name: spaces.Box(-1, 1, (size,), np.float64) for name, size in (("observation", 4), ("achieved_goal", 2))}
        | {"desired_goal": spaces.Box(-1, 1, (2,), np.float64)}
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return {"observation": np.zeros(4), "achieved_goal": np.ones(2), "desired_goal": -np.ones(2)}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.reset()[0], -1.0, False, False, {}


gymnasium.register("test/Reach", entry_point=Reach)


def test_goals_of_a_gymnasium_environment_are_kept_apart() -> None:
    observation, _ = make_vec_env("test/Reach", num_envs=3).reset(seed=0)
    travelling = as_observation(observation)
    assert {key: value.shape for key, value in travelling.items()} == {
        "state": (3, 4),
        "achieved_goal": (3, 2),
        "desired_goal": (3, 2),
    }
    assert travelling["desired_goal"].dtype == np.float32
    assert (travelling["desired_goal"] == -1).all()


def test_the_built_in_task_by_its_id() -> None:
    env = make_vec_env("tabletop/PegInsertion", num_envs=3, max_episode_steps=7, options={"randomize": {"light": True}})
    assert isinstance(env, TabletopVectorEnv)
    assert (env.num_envs, env.max_episode_steps, env.task.name) == (3, 7, "PegInsertion")
    assert env.randomize.light


def test_the_built_in_task_keeps_its_own_limit_unless_told() -> None:
    assert make_vec_env("tabletop/PickCube").max_episode_steps == 50


def test_cartpole_runs_and_resets_within_the_step() -> None:
    env = make_vec_env("CartPole-v1", num_envs=2)
    assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    policy = make_policy("random", env, 0)
    observation, _ = env.reset(seed=0)
    infos: dict[str, Any] = {}
    while "final_obs" not in infos:
        observation, _, terminated, truncated, infos = env.step(policy.act(observation))
    ended = int(np.flatnonzero(terminated | truncated)[0])
    assert abs(infos["final_obs"][ended][2]) > 0.2  # the pole has fallen there
    assert abs(observation[ended][2]) < 0.06  # and stands again here


def test_pictures_of_a_plain_environment_come_with_the_observation() -> None:
    env = make_vec_env("test/Counter", num_envs=2, obs_mode="state+images", cameras=("view",), image_size=(3, 24, 32))
    observation, _ = env.reset(seed=0)
    assert observation["images"]["view"].shape == (2, 24, 32, 3)
    for _ in range(5):
        observation, _, terminated, _, infos = env.step(np.zeros(2, int))
    assert terminated.all()
    assert (infos["final_obs"][0]["images"]["view"] == 250).all()  # the true last picture
    assert (observation["images"]["view"] == 0).all()  # the next episode's first
    assert np.array_equal(observation["state"][0], [1, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("env_id", "settings", "message"),
    [
        ("CartPol-v1", {}, "Did you mean 'CartPole-v1'"),
        ("tabletop/PickCub", {}, "Did you mean 'PickCube'"),
        ("tabletop/PickCube", {"options": {"gravity": 3}}, "unknown option of 'tabletop/PickCube' 'gravity'"),
        ("CartPole-v1", {"options": {"gravity": 3}}, "does not take these options.*gravity"),
        ("test/Counter", {"obs_mode": "images", "cameras": ("a", "b")}, "has one picture"),
        ("test/Counter", {"obs_mode": "proprio+images"}, "obs_mode: 'test/Counter' does not offer proprio"),
        ("test/Reach", {"image_size": (3, 32, 32)}, "image_size: 'test/Reach' does not offer it"),
        ("test/Reach", {"cameras": ("wrist",)}, "cameras: 'test/Reach' does not offer it"),
        ("test/Reach", {"obs_mode": "images"}, "cameras: 'test/Reach' cannot be drawn"),
        ("toy/KeyDoor", {"obs_mode": "images"}, "cameras: 'toy/KeyDoor' cannot be drawn"),
        ("toy/BitFlip", {"success_hold_steps": 3}, "success_hold_steps: 'toy/BitFlip' does not offer it"),
        ("toy/BitFlip", {"image_size": (3, 32, 32)}, "image_size: 'toy/BitFlip' does not offer it"),
    ],
)
def test_what_cannot_be_made_says_why(env_id: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_vec_env(env_id, **settings)


def test_cameras_may_be_named_where_there_are_pictures_or_none_are_wanted() -> None:
    make_vec_env("test/Counter", obs_mode="images", cameras=("view",), image_size=(3, 24, 32))
    make_vec_env("CartPole-v1", cameras=())
    make_vec_env("toy/BitFlip", cameras=("base_camera",), image_size=(3, 64, 64))  # the defaults


@pytest.mark.parametrize("env_id", ["tabletop/PickCube", "toy/BitFlip", "CartPole-v1"])
def test_no_environment_takes_the_place_of_a_robot(env_id: str) -> None:
    pose = (0.5, 0.0, 0.1, -3.14, 0.0, 0.0)
    with pytest.raises(ConfigError, match=r"target_ee_pose: found .* is no robot and would not use it"):
        make_vec_env(EnvConfig(id=env_id, target_ee_pose=pose))


def test_scripted_policies_say_what_they_need() -> None:
    with pytest.raises(ConfigError, match=r"need an environment with scripted_action\(\): 'CartPole-v1' has none"):
        make_policy("expert", make_vec_env("CartPole-v1"), 0)
    with pytest.raises(ConfigError, match="Did you mean 'expert'"):
        make_policy("exprt", make_vec_env("CartPole-v1"), 0)


def test_scripted_policies_know_the_state_whatever_is_observed() -> None:
    actions = []
    for obs_mode in ("state", "images", "proprio+images"):
        env = make_vec_env("tabletop/PickCube", num_envs=2, obs_mode=obs_mode)
        observation, _ = env.reset(seed=0)
        actions.append(make_policy("expert", env, 0).act(observation))
    assert np.array_equal(actions[0], actions[1])
    assert np.array_equal(actions[0], actions[2])


USERS = "families_of_a_user"


@pytest.fixture(autouse=True)
def find_modules_beside_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)


def test_a_family_of_the_user_is_found_in_its_module() -> None:
    env = make_vec_env(f"{USERS}:line/Walk", num_envs=2, success_hold_steps=2, options={"length": 2})
    env.reset(seed=0)
    ends = [env.step(np.array([1, 0]))[2].tolist() for _ in range(3)]
    assert ends == [[False, False], [False, False], [True, False]]


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        (
            "nowhere/CartPole-v1",
            r"unknown environment 'nowhere/CartPole-v1'\. Did you mean 'CartPole-v1'\?.*: package:Id",
        ),
        ("Abcdef-v9", r"unknown environment 'Abcdef-v9'\. If it comes from .*, name that too: package:Id"),
        (f"{USERS}:lin/Walk", f"unknown environment of {USERS} 'lin/Walk'. Choices: Line, "),
        ("no_such_module:Any-v0", "environment 'no_such_module:Any-v0': importing 'no_such_module' failed"),
    ],
)
def test_an_unknown_id_says_how_to_name_the_package(env_id: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make_vec_env(env_id)
    assert len(str(caught.value)) < 300


def test_actions_are_repeated_in_the_built_in_environments() -> None:
    action = np.full((2, 4), 0.3, np.float32)
    settings: dict[str, Any] = {"num_envs": 2, "options": {"motion_noise": 0.0}}
    once, twice = (
        make_vec_env("tabletop/PickCube", **settings),
        make_vec_env("tabletop/PickCube", action_repeat=2, **settings),
    )
    start, _ = once.reset(seed=0)
    assert np.array_equal(twice.reset(seed=0)[0], start)
    rows = [once.step(action) for _ in range(2)]
    row = twice.step(action)
    assert np.array_equal(row[0], rows[-1][0])
    assert row[1] == pytest.approx(rows[0][1] + rows[1][1])
    ends = [twice.step(action)[3].all() for _ in range(24)]
    assert ends == [False] * 23 + [True]  # its own limit of 50 steps is 25 of the policy


def test_a_repeated_action_stops_where_the_episode_ends() -> None:
    env = make_vec_env("toy/BitFlip", num_envs=8, action_repeat=3, options={"bits": 1}, max_episode_steps=2)
    env.reset(seed=0)
    _, reward, terminated, _, _ = env.step(np.zeros(8, int))
    assert terminated.all()  # the first flip is right, the others are not made
    assert (reward == 0).all()
    wide = make_vec_env("toy/BitFlip", num_envs=8, action_repeat=3, options={"bits": 20})
    wide.reset(seed=0)
    assert (wide.step(np.zeros(8, int))[1] == -3).any()


def test_wrappers_of_a_batch_are_vector_wrappers() -> None:
    settings: dict[str, Any] = {"num_envs": 2, "options": {"bits": 20}}
    env = make_vec_env("toy/BitFlip", wrappers=[{"name": f"{USERS}:Doubled", "options": {"times": 5.0}}], **settings)
    env.reset(seed=0)
    assert env.step(np.zeros(2, int))[1].tolist() == [-5, -5]
    with pytest.raises(ConfigError, match="is for a single environment, but 'toy/BitFlip' is stepped as one batch"):
        make_vec_env("toy/BitFlip", wrappers=[{"name": "gymnasium.wrappers:TimeLimit"}], **settings)
