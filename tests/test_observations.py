"""The same observations are read alike by collectors, wrappers, workers, reward models, expert data and policies."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tensordict import TensorDict
from torch import Tensor

from rewardlab.data import RewardDataCollector, read_episodes
from rewardlab.envs.camera_frames import CameraFrames
from rewardlab.envs.wrappers import DataCollectorWrapper
from rewardlab.errors import ConfigError, DataError
from rewardlab.models.encoders import make_encoder
from rewardlab.observations import (
    as_observation,
    camera_images,
    copy_observation,
    read_parts,
    read_vectors,
    space_shapes,
    to_batch,
)
from rewardlab.rewards import expert_transitions
from rewardlab.rewards.zoo.task import Task
from rewardlab.rewards.zoo.transitions import observation_of, read_images, read_rows

SIDE, ENVS = 32, 2
PICTURE = spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,), np.float64)
GOAL = spaces.Box(-1, 1, (2,), np.float64)
CAMERA = "images.base_camera"

# What environments show, and the shapes of the parts that everyone should find in it.
FORMS: dict[str, tuple[spaces.Space[Any], dict[str, tuple[int, ...]]]] = {
    "state": (VECTOR, {"state": (3,)}),
    "goals": (
        spaces.Dict({"observation": VECTOR, "achieved_goal": GOAL, "desired_goal": GOAL}),
        {"state": (3,), "achieved_goal": (2,), "desired_goal": (2,)},
    ),
    "picture": (PICTURE, {CAMERA: PICTURE.shape}),
    "images": (spaces.Dict({"images": spaces.Dict({"base_camera": PICTURE})}), {CAMERA: PICTURE.shape}),
    "state+images": (
        spaces.Dict({"state": VECTOR, "images": spaces.Dict({"base_camera": PICTURE})}),
        {"state": (3,), CAMERA: PICTURE.shape},
    ),
    "main_images": (
        spaces.Dict({"main_images": PICTURE, "states": VECTOR}),
        {"state": (3,), CAMERA: PICTURE.shape},
    ),
    "goals+images": (
        spaces.Dict({"observation": VECTOR, "desired_goal": GOAL, "images": spaces.Dict({"base_camera": PICTURE})}),
        {"state": (3,), "desired_goal": (2,), CAMERA: PICTURE.shape},
    ),
}


class Shows(gymnasium.Env[Any, Any]):
    """Shows random observations of a form; its episodes are two steps long."""

    action_space = spaces.Discrete(2)

    def __init__(self, form: str) -> None:
        self.observation_space = FORMS[form][0]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.observation_space.sample(), 0.0, self.steps == 2, False, {"success": False}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def make(form: str) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: Shows(form)] * ENVS, autoreset_mode=AutoresetMode.SAME_STEP)


def flat(observation: Any) -> dict[str, Tensor]:
    return {name: torch.as_tensor(part) for name, part in read_parts(observation).items()}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, part in expected.items():
        assert torch.equal(found[name].to(part.dtype), part), name


def test_everyone_finds_the_same_parts(form: str, tmp_path: Path) -> None:
    space, shapes = FORMS[form]
    assert space_shapes(space) == shapes
    task = Task.from_spaces(space, spaces.Discrete(2))
    assert task.observation == shapes
    vectors = {name: shape for name, shape in shapes.items() if name != CAMERA}

    with DataCollectorWrapper(make(form), tmp_path, cameras=("base_camera",) if CAMERA in shapes else ()) as env:
        first, _ = env.reset(seed=[0, 1])
        expected = flat(as_observation(first))  # an environment worker's
        copied = copy_observation(first)  # a reward wrapper's
        assert {name: tuple(part.shape[1:]) for name, part in expected.items()} == shapes
        assert {name: part.dtype for name, part in expected.items() if name in vectors} == dict.fromkeys(
            vectors, torch.float32
        )
        second, *_ = env.step(np.zeros(ENVS, int))
        env.step(np.zeros(ENVS, int))
    assert_same(flat(copied), expected)

    rows = {"action": torch.zeros(ENVS, dtype=torch.int64)}
    for before, after in ((first, second), (copied, copy_observation(second))):
        batch = {**rows, "observation": before, "next_observation": after}
        found = read_rows(batch, task, ("observation", "arrival")).columns  # a reward model's
        assert_same(observation_of(found, "observation"), expected)
        assert_same(observation_of(found, "arrival"), flat(as_observation(second)))
        expert = expert_transitions(batch)
        assert_same(flat(expert["observation"]), expected)

    episodes = [stored.load().steps["observation"] for stored in read_episodes(tmp_path)]
    stored = torch.stack([episode[0] for episode in episodes])
    order = [int(np.flatnonzero([_equal(stored[i], expected, row) for i in range(ENVS)])[0]) for row in range(ENVS)]
    assert_same(flat(stored[order]), expected)

    encoder = make_encoder(space, "cnn" if CAMERA in shapes else "mlp", normalize_states=False)
    assert encoder.cameras == (("base_camera",) if CAMERA in shapes else ())
    features = encoder(to_batch(as_observation(first)))
    assert features.shape == (ENVS, encoder.size)
    assert torch.equal(encoder(stored[order]), features)


def _equal(stored: TensorDict, expected: dict[str, Tensor], row: int) -> bool:
    return all(torch.equal(part, expected[name][row]) for name, part in flat(stored).items())


@pytest.mark.parametrize("form", ["picture", "images", "state+images", "goals+images"])
def test_everyone_finds_the_same_pictures(form: str, tmp_path: Path) -> None:
    env = make(form)
    obs, _ = env.reset(seed=[0, 1])
    expected = as_observation(obs)["images"]["base_camera"]
    np.testing.assert_array_equal(camera_images(obs)["base_camera"], expected)
    np.testing.assert_array_equal(CameraFrames(env, ("base_camera",)).now(obs)["base_camera"], expected)
    for data in (obs, {"next_obs": obs, "obs": 0 * expected}, {"observation": obs}):
        images = read_images(data)  # a classifier's
        np.testing.assert_array_equal(images["base_camera"] if isinstance(images, dict) else images, expected)
    with RewardDataCollector(positive_dir=tmp_path / "p", negative_dir=tmp_path / "n") as collector:
        collector.add_env_output({"obs": obs}, is_last_step=True)
    found = {stored.frame("base_camera", 0).tobytes() for stored in read_episodes(tmp_path)}
    assert found == {picture.tobytes() for picture in expected}


def test_names_that_are_not_nested_and_parts_of_other_names() -> None:
    picture, row = np.zeros((2, 4, 5, 3)), np.zeros((2, 3))
    for obs in ({"images/cam.left": picture}, {"images.cam.left": picture}, {"images": {"cam.left": picture}}):
        assert list(read_parts(obs)) == ["images.cam.left"]
        assert list(camera_images(obs)) == ["cam.left"]
    assert list(read_parts({"images": picture}, camera="hand")) == ["images.hand"]
    assert list(camera_images({"observation": row, "hand": picture})) == ["hand"]
    assert list(read_parts({"robot": {"arm": {"angle": row}}, "observation": row})) == ["robot.arm.angle", "state"]
    assert list(read_parts(copy_observation({"robot": {"angle": row}}))) == ["robot.angle"]
    assert camera_images((picture, row)) == camera_images(None) == camera_images(row) == {}
    assert read_vectors(np.zeros((2, 3, 4)))["state"].shape == (2, 12)


def test_a_copy_stays_when_the_environment_writes_the_next_observation() -> None:
    obs = {"state": np.ones((2, 3)), "images": {"hand": np.ones((2, 4, 4, 3), np.uint8)}}
    copied = copy_observation(obs)
    obs["state"][:] = obs["images"]["hand"][:] = 7  # type: ignore[index]
    assert (copied["state"] == 1).all()
    assert (copied["images", "hand"] == 1).all()
    assert copied.batch_size == (2,)


EXPECTED = "expected states, pictures, or a dictionary with 'state'"


@pytest.mark.parametrize(
    ("observation", "found"),
    [
        (None, "observations are a NoneType"),
        ((np.zeros((2, 3)), np.zeros((2, 3))), "observations are a tuple"),
        ({"state": (np.zeros(2), np.zeros(2))}, "'state' of the observations is a tuple"),
        ({"position": np.zeros((2, 3))}, "observations have position"),
        ({"state": np.zeros((2, 3)), "robot": {"arm": np.zeros((2, 3))}}, "observations have state, robot.arm"),
        ({}, "observations have no parts"),
    ],
)
def test_values_of_other_forms_are_refused_with_what_was_found(observation: Any, found: str) -> None:
    with pytest.raises(DataError, match=f"{found}; {EXPECTED}"):
        as_observation(observation)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3),
        spaces.Tuple([VECTOR, VECTOR]),
        spaces.Text(3),
        spaces.Dict({"state": spaces.Discrete(3)}),
        spaces.Dict({"images": spaces.Dict({"hand": spaces.Tuple([PICTURE])})}),
        spaces.Dict({}),
    ],
)
def test_spaces_of_other_forms_are_refused_by_everyone(space: spaces.Space[Any]) -> None:
    with pytest.raises(ConfigError, match=f"observation space .*: {EXPECTED}"):
        Task.from_spaces(space, spaces.Discrete(2))
    with pytest.raises(ConfigError, match=f"observation space .*: {EXPECTED}"):
        make_encoder(space, "mlp", normalize_states=False)


def test_a_reward_model_takes_states_of_several_axes_flat_or_not() -> None:
    task = Task.from_spaces(spaces.Box(-1, 1, (4, 3)), spaces.Discrete(2))
    states = torch.randn(5, 4, 3)
    for given in (states, states.flatten(1)):
        found = read_rows({"observation": {"state": given}}, task, ("observation",)).columns
        assert torch.equal(found["observation.state"], states)
