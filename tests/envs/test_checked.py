"""An environment that returns something else than it promised is named, with the step; its own errors are its own."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from rewardlab.cli import main
from rewardlab.envs import make_vec_env
from rewardlab.envs.checked import read_step
from rewardlab.envs.wrappers import DataCollectorWrapper
from rewardlab.errors import DataError

GOOD = np.zeros(3, np.float32)
STEPS: dict[str, tuple[Callable[[], Any], str]] = {
    "four": (
        lambda: (GOOD, 0.0, False, {}),
        "step\\(\\) returned a tuple of 4 values; expected .*the older gym had four",
    ),
    "none": (lambda: None, "step\\(\\) returned None; expected observation, reward"),
    "info_none": (lambda: (GOOD, 0.0, False, False, None), "info is None; expected a dictionary"),
    "info_list": (lambda: (GOOD, 0.0, False, False, []), "info is a list"),
    "shape": (lambda: (np.zeros(4), 0.0, False, False, {}), r"of shape \(4,\); expected numbers of shape \(3,\)"),
    "observation_list": (lambda: ([[1.0]], 0.0, False, False, {}), r"observation is a list of shape \(1, 1\)"),
    "observation_text": (lambda: ("abc", 0.0, False, False, {}), "observation is the text 'abc'"),
    "reward": (lambda: (GOOD, [1.0, 2.0], False, False, {}), r"reward is a list of shape \(2,\); expected a number"),
    "reward_none": (lambda: (GOOD, None, False, False, {}), "reward is None; expected a number"),
    "reward_nan": (lambda: (GOOD, float("nan"), False, False, {}), "reward is nan; expected finite numbers"),
    "inf": (lambda: (GOOD + np.inf, 0.0, False, False, {}), "observation is inf; expected finite numbers"),
    "terminated": (lambda: (GOOD, 0.0, "no", False, {}), "terminated is the text 'no'; expected true or false"),
}


class OddEnv(gymnasium.Env[Any, Any]):
    """Returns what `how` names in its third step."""

    observation_space, action_space = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)

    def __init__(self, how: str = "") -> None:
        self.how = how

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        good = GOOD.copy()
        return good if self.how == "reset" else (good, None) if self.how == "reset_info" else (good, {})

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 3 and self.how == "raises":
            raise KeyError("my own mistake")
        if self.steps == 3 and self.how in STEPS:
            return STEPS[self.how][0]()
        return GOOD.copy(), 0.0, self.steps > 4, False, {}


gymnasium.register("OddEnv-v0", OddEnv)


@pytest.mark.parametrize("how", STEPS)
def test_a_wrong_step_is_named(how: str) -> None:
    env = make_vec_env("OddEnv-v0", num_envs=2, cameras=[], options={"how": how})
    env.reset(seed=0)
    for _ in range(2):
        env.step(np.zeros(2, int))
    with pytest.raises(DataError, match=f"^environment 'OddEnv-v0', step 3 after its reset: .*{STEPS[how][1]}"):
        env.step(np.zeros(2, int))


@pytest.mark.parametrize("how", ["reset", "reset_info"])
@pytest.mark.filterwarnings("ignore")
def test_a_wrong_reset_is_named(how: str) -> None:
    env = make_vec_env("OddEnv-v0", num_envs=2, cameras=[], options={"how": how})
    with pytest.raises(DataError, match=r"^environment 'OddEnv-v0', reset: .*xpected .*observation, info"):
        env.reset(seed=0)


def test_a_list_of_the_right_shape_is_an_observation() -> None:
    env = make_vec_env("OddEnv-v0", num_envs=1, cameras=[])
    env.reset(seed=0)
    assert env.step(np.zeros(1, int))[0].shape == (1, 3)


def test_an_error_inside_of_an_environment_keeps_its_own_frames(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["env.train.num_envs=2", "algorithm.ppo.rollout_steps=8", f"runner.logger.log_path={tmp_path}"]
    options = ["env.train.id=OddEnv-v0", "env.train.options.how=raises", "env.train.cameras=[]"]
    assert main(["run", "tabletop_ppo_mlp", *small, *options, "env.train.max_episode_steps=null"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("Traceback (most recent call last):\n")
    assert error.count("File") == 1
    assert 'raise KeyError("my own mistake")' in error
    assert error.endswith("KeyError: 'my own mistake'\n")


class OddVectorEnv(VectorEnv[Any, Any, Any]):
    """A vector environment of the user's, whose infos are None."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    num_envs = 2
    single_observation_space, single_action_space = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)
    observation_space, action_space = spaces.Box(-1, 1, (2, 3), np.float32), spaces.MultiDiscrete([2, 2])

    def reset(self, **_: Any) -> Any:
        return np.zeros((2, 3), np.float32), {}

    def step(self, actions: Any) -> Any:
        return np.zeros((2, 3), np.float32), np.zeros(2), np.zeros(2, bool), np.zeros(2, bool), None


def test_a_vector_environment_of_the_users_is_named(tmp_path: Any) -> None:
    env = DataCollectorWrapper(OddVectorEnv(), tmp_path, cameras=())
    env.reset(seed=0)
    with pytest.raises(DataError, match=r"^environment 'OddVectorEnv', step 1: info is None; expected a dictionary"):
        env.step(np.zeros(2, int))


@pytest.mark.parametrize("one", [0.5, [0.5], (0.5,), np.array([0.5]), np.array([[0.5]])])
def test_one_number_in_a_list_or_array_is_a_number(one: Any) -> None:
    result = read_step((GOOD, one, [False], np.array([True]), {}), "Toy-v0", "step 1", spaces.Box(-1, 1, (3,)))
    assert result[1:4] == (0.5, False, True)
