"""Tasks of Meta-World; needs the package, and OpenGL for pictures: make metaworld."""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rewardlab.envs import make_vec_env
from rewardlab.envs.metaworld.env import MetaWorldEnv
from rewardlab.envs.policies import make_policy
from rewardlab.errors import ConfigError, DataError

# This directory is not called metaworld: tests/envs is on the path, and an import would find it there.
pytest.importorskip("metaworld", reason="Meta-World is not installed: make metaworld")

CAMERA, SIZE = "base_camera", (64, 64)


@pytest.fixture(scope="module")
def drawer() -> Iterator[MetaWorldEnv]:
    env = MetaWorldEnv("drawer-close-v3")
    yield env
    env.close()


@pytest.fixture(scope="module")
def drawn(drawer: MetaWorldEnv) -> Any:
    """A frame of the first moment; skips where nothing can be drawn."""
    drawer.reset(seed=0)
    try:
        return drawer.render_cameras([CAMERA], SIZE)[CAMERA]
    except ConfigError as error:
        pytest.skip(str(error))


def act(env: MetaWorldEnv, steps: int) -> list[Any]:
    return [env.step(env.scripted_action()) for _ in range(steps)]


def test_the_seed_decides_the_scene_whatever_happened_before(drawer: MetaWorldEnv) -> None:
    first, _ = drawer.reset(seed=1)
    following, _ = drawer.reset()
    other, _ = drawer.reset(seed=2)
    act(drawer, 5)
    again, _ = drawer.reset(seed=1)
    assert np.array_equal(first, again)
    assert np.array_equal(following, drawer.reset()[0])
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, following)


def test_it_is_meta_worlds_own_task_with_a_visible_goal(drawer: MetaWorldEnv) -> None:
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS
    from metaworld.types import Task

    observation, info = drawer.reset(seed=3)
    assert info == {"success": False}
    original: Any = ALL_V3_ENVIRONMENTS["drawer-close-v3"]()
    scene = {"rand_vec": drawer._sim._last_rand_vec, "partially_observable": False, "env_cls": type(original)}
    original.set_task(Task(env_name="drawer-close-v3", data=pickle.dumps(scene)))
    expected, _ = original.reset()
    assert np.allclose(observation, expected, atol=1e-6)
    assert (observation[-3:] != 0).any()
    for action in np.random.default_rng(0).uniform(-1, 1, (5, 4)):
        observation, reward, terminated, truncated, info = drawer.step(action)
        expected, expected_reward, _, _, expected_info = original.step(action)
        assert np.allclose(observation, expected, atol=1e-6)
        assert reward == expected_reward
        assert (terminated, truncated) == (False, False)
        assert info == {"success": bool(expected_info["success"])}
    original.close()


def test_the_first_observation_of_a_window_shows_it_open() -> None:
    env = MetaWorldEnv("window-close-v3")
    observation, _ = env.reset(seed=0)
    following, *_ = env.step(np.zeros(4))
    assert np.allclose(observation[4:7], following[4:7], atol=0.01)
    env.close()


def test_an_expert_succeeds_and_stays_there() -> None:
    env = make_vec_env("metaworld/drawer-close-v3", num_envs=2, action_repeat=5, max_episode_steps=25, processes=1)
    observation, _ = env.reset(seed=0)
    policy = make_policy("expert", env, 0)
    for _ in range(25):
        observation, _, terminated, truncated, infos = env.step(policy.act(observation))
    assert not terminated.any()
    assert truncated.all()
    assert infos["final_info"]["success"].all()
    assert not infos["success"].any()
    env.close()


@pytest.mark.parametrize(("repeat", "steps"), [(1, 500), (5, 100), (999, 1)])
def test_episodes_have_meta_worlds_length_in_steps_of_the_simulator(repeat: int, steps: int) -> None:
    env = make_vec_env("metaworld/reach-v3", action_repeat=repeat)
    assert env.spec is not None
    assert env.spec.max_episode_steps == steps
    env.close()


def test_an_episode_may_be_longer_than_in_meta_world(drawer: MetaWorldEnv) -> None:
    drawer.reset(seed=0)
    drawer._sim.curr_path_length = 499
    assert [step[3] for step in act(drawer, 3)] == [False] * 3


def test_a_moment_can_be_drawn_later(drawer: MetaWorldEnv, drawn: Any) -> None:
    assert (drawn.shape, drawn.dtype) == ((*SIZE, 3), np.uint8)
    assert drawn.std() > 20
    drawer.reset(seed=0)
    moment = drawer.keep_state()
    act(drawer, 40)
    assert not np.array_equal(drawer.render_cameras([CAMERA], SIZE)[CAMERA], drawn)
    assert np.array_equal(drawer.draw_state(moment, [CAMERA], SIZE)[CAMERA], drawn)


def test_every_size_and_camera_is_drawn_upright(drawer: MetaWorldEnv, drawn: Any) -> None:
    drawer.reset(seed=0)
    for size in ((32, 48), (128, 128), (200, 160), SIZE):
        frames = drawer.render_cameras(drawer.camera_names, size)
        assert {frame.shape for frame in frames.values()} == {(*size, 3)}
    for name in ("corner", "corner2", "corner4"):  # the background, grey, is above the brown table
        above, below = np.array_split(frames[name].astype(int), 2)
        assert np.abs(above[0] - [127, 126, 122]).mean() < np.abs(below[-1] - [127, 126, 122]).mean(), name
    assert np.array_equal(frames[CAMERA], drawn)


def test_the_goal_is_a_dot_that_can_be_shown(drawn: Any) -> None:
    frames = []
    for show_goal in (False, True):
        env = MetaWorldEnv("reach-v3", show_goal=show_goal)
        env.reset(seed=0)
        frames.append(env.render_cameras([CAMERA], SIZE)[CAMERA].astype(int))
        env.close()
    changed = np.abs(frames[0] - frames[1]).max(axis=2) > 10
    assert 1 <= changed.sum() < 30


def test_what_is_not_there_is_refused_with_the_nearest_name(drawer: MetaWorldEnv) -> None:
    with pytest.raises(
        ConfigError, match=r"unknown task of Meta-World 'drawer-clse-v3'. Did you mean 'drawer-close-v3'"
    ):
        make_vec_env("metaworld/drawer-clse-v3")
    with pytest.raises(ConfigError, match=r"unknown option of 'metaworld/reach-v3' 'camra'. Did you mean 'camera'"):
        make_vec_env("metaworld/reach-v3", options={"camra": {}})
    with pytest.raises(ConfigError, match=r"options.show_goal: found 1, expected true or false"):
        make_vec_env("metaworld/reach-v3", options={"show_goal": 1})
    with pytest.raises(DataError, match="unknown camera of 'metaworld/drawer-close-v3' 'corner5'"):
        drawer.render_cameras(["corner5"], SIZE)


DRAW = """
import threading
from rewardlab.envs import make_vec_env
from rewardlab.errors import ConfigError

def draw():
    env.reset(seed=0)
    env.render_cameras(["base_camera"], (64, 64))

try:
    env = make_vec_env("metaworld/reach-v3", processes=1)
    draw()
except ConfigError as error:
    print(error)
"""
IN_THREADS = """
done = threading.Event()

def draw_and_stay(stay):
    draw()
    done.set()
    if stay:
        threading.Event().wait()

for stay in (False, False, True):
    threading.Thread(target=draw_and_stay, args=(stay,), daemon=stay).start()
    done.wait()
    done.clear()
"""


@pytest.mark.parametrize(
    "variables",
    [{"MUJOCO_GL": "glfw"}, {"MUJOCO_GL": "egll"}, {"MUJOCO_GL": "egl", "MUJOCO_EGL_DEVICE_ID": "99"}],
    ids=lambda variables: "-".join(variables.values()),
)
def test_an_impossible_backend_is_one_line_that_names_the_variable(variables: dict[str, str]) -> None:
    result = draw(**variables)
    assert f"'metaworld/reach-v3' cannot draw with MUJOCO_GL={variables['MUJOCO_GL']}" in result.stdout
    assert "make metaworld" in result.stdout
    assert result.stdout.count("\n") == 1
    assert result.stderr == ""


@pytest.mark.parametrize("then", ["", IN_THREADS], ids=["main_thread", "threads"])
def test_a_program_that_has_drawn_ends_in_silence(drawn: Any, then: str) -> None:
    result = draw(then)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def draw(then: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
    dropped = ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    command = [sys.executable, "-c", DRAW + then]
    return subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=False)
