"""Environments of a user's own, named as `module:name`."""

from typing import Any

import numpy as np
import pytest

from rewardlab.envs import make_vec_env
from rewardlab.errors import ConfigError
from rewardlab.observations import as_observation


def run(env_id: str, **settings: Any) -> tuple[Any, Any]:
    """Step two environments to the end of their episodes; return the environment and what that step returned."""
    env = make_vec_env(f"own_envs:{env_id}", **{"num_envs": 2, **settings})
    env.reset(seed=0)
    for _ in range(settings.get("max_episode_steps") or 6):
        result = env.step(np.ones(env.action_space.shape))
    return env, result


@pytest.mark.parametrize("name", ["test-own/Rail-v0", "Rail", "passes_on"])
def test_an_id_a_class_and_a_function_make_the_same_environment(name: str) -> None:
    env, (obs, _, terminated, truncated, infos) = run(name)
    assert (env.num_envs, env.camera_names) == (2, ("base_camera",))
    assert not terminated.any()
    assert truncated.all()
    assert infos["final_info"]["is_success"].tolist() == [1, 1]
    assert infos["final_obs"][0][0] == 1
    assert (obs[:, 0] < 0).all()  # the next episode has begun
    assert env.render_cameras(("base_camera",), (48, 64))["base_camera"].shape == (2, 48, 64, 3)


def test_options_are_arguments_and_processes_give_the_same_numbers() -> None:
    _, (here, *_, infos) = run("Rail", options={"length": 3})
    _, (there, *_) = run("Rail", options={"length": 3}, processes=2)
    assert "final_obs" in infos
    assert np.array_equal(here, there)


def test_the_task_is_called_by_the_name_in_the_module() -> None:
    env, _ = run("Rail")
    assert env.spec.id == "own_envs:Rail"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "Rial",
            r"unknown environment of own_envs 'Rial'\. Did you mean 'Rail'\?",
        ),
        ("number", r"'own_envs:number' is 7 \(int\); expected a class of gymnasium.Env, or a function"),
        ("ready", "'own_envs:ready' exists already; expected a class"),
        ("NoEnv", r"'own_envs:NoEnv' is a class of builtins\.object; expected gymnasium\.Env among its base classes"),
        ("returns_nothing", r"returns_nothing\(\) returned None; expected a gymnasium\.Env or a gymnasium\.vector"),
        ("one_with_a_count", r"one_with_a_count\(\) has a parameter num_envs, but returned a Rail; expected"),
        ("four", r"four\(\) returned a vector environment of 4; expected a parameter num_envs"),
        (
            "Needy",
            r"a required argument: 'robot'\. Its arguments are env\.train\.options; Needy\(\) takes: robot",
        ),
    ],
)
def test_what_makes_no_environment_says_why(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_vec_env(f"own_envs:{name}")


def test_an_unknown_option_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"unexpected keyword argument 'lenght'.*Rail\(\) takes: length"):
        make_vec_env("own_envs:Rail", options={"lenght": 3})


def test_a_module_that_is_not_found_says_where_it_was_looked_for(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "my_rail.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    with pytest.raises(ConfigError, match=rf"a file my_rial\.py in the current directory, {tmp_path}.* mean 'my_rail'"):
        make_vec_env("my_rial:Rail")


def test_errors_of_the_user_stay_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="motor on fire"):
        run("Burning")


def test_an_id_without_a_version_can_be_drawn_too() -> None:
    assert make_vec_env("CartPole", cameras=()).camera_names == ("base_camera",)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "state", "cameras"),
    [
        ("Pixels", 2, ("top",)),
        ("Agentview", 3, ("agentview_image", "eye_in_hand_image", "base_camera")),
        ("RowsFirst", None, ("base_camera", "render")),
        ("ColoursFirst", None, ("base_camera", "render")),
        ("Goals", 1, ("image", "base_camera")),
        ("Odd", 3, ("base_camera",)),
        ("Blind", 2, ()),
    ],
)
@pytest.mark.filterwarnings("ignore:.*without 'mission'")
def test_pictures_of_observations_are_cameras_and_the_rest_is_the_state(
    name: str, state: int | None, cameras: tuple[str, ...]
) -> None:
    env, (obs, *_) = run(name)
    assert env.camera_names == cameras
    seen = as_observation(obs)
    assert seen.get("state", np.zeros((2, 0))).shape[1:] == (state or 0,)
    assert set(seen) == ({"images"} if state is None else {"state", "achieved_goal", "desired_goal"} & set(seen))


def test_each_camera_shows_its_own_picture() -> None:
    settings: dict[str, Any] = {"cameras": ("eye_in_hand_image", "render"), "image_size": (3, 48, 64)}
    _, (obs, *_, infos) = run("Agentview", obs_mode="state+images", **settings)
    hand, rendered = (obs["images"][camera][0, 0, 0].tolist() for camera in settings["cameras"])
    assert (hand, rendered) == ([255] * 3, [0] * 3)
    assert infos["final_obs"][0]["images"]["eye_in_hand_image"].shape == (48, 64, 3)
    assert obs["state"][0].tolist() == [0.25, obs["state"][0][1], 0.5]  # in the order of the names


def test_goals_stay_apart_beside_a_picture() -> None:
    _, (obs, *_) = run("Goals")
    assert set(obs) == {"state", "achieved_goal", "desired_goal"}
    _, (obs, *_) = run("Goals", obs_mode="state+images", cameras=("image",))
    assert obs["state"].shape == (2, 3)


def test_a_large_array_that_is_no_picture_is_named() -> None:
    with pytest.warns(UserWarning, match=r"'depth' of its observations, .*\[40, 40, 1\].* becomes 1,600 numbers"):
        make_vec_env("own_envs:Depth")
