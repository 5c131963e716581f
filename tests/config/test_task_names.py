"""Names of tasks: stored with every episode, so they must stay the same from version to version."""

import dataclasses
from typing import Any

import pytest

from rewardlab.config.schema import EnvConfig, WrapperConfig
from rewardlab.config.task_names import DEFAULTS, NOT_IN_NAMES
from rewardlab.envs.maniskill.options import ManiSkillOptions


@pytest.mark.parametrize(
    ("settings", "task"),
    [
        ({}, "tabletop/PickCube"),
        ({"id": "CartPole-v1", "num_envs": 8, "reward": "sparse", "max_episode_steps": 5}, "CartPole-v1"),
        ({"id": "package:Fetch-v1", "options": {"render_mode": "rgb_array", "seed": None}}, "Fetch-v1"),
        ({"id": "a:b:Fetch-v1", "options": {"empty": {}, "deep": {"null": None}}}, "Fetch-v1"),
        (
            {"id": "maniskill/PickCube-v1", "action_repeat": 2, "options": {"control_mode": "ee", "a": {"b": True}}},
            "maniskill/PickCube-v1 [a.b=true, action_repeat=2, control_mode=ee]",
        ),
        ({"id": "maniskill/PickCube-v1", "options": {"sim_backend": "cpu"}}, "maniskill/PickCube-v1"),
        (
            {"id": "maniskill/PickCube-v1", "options": {"sim_backend": "gpu", "stepping": "auto"}},
            "maniskill/PickCube-v1 [sim_backend=gpu]",
        ),
        (
            {"id": "maniskill/PickCube-v1", "options": {"render_backend": "gpu", "task": {"render_mode": "all"}}},
            "maniskill/PickCube-v1 [task.render_mode=all]",
        ),
        (
            {"id": "maniskill/X-v1", "options": {"camera": {"target": [0.0, 1, 2], "eye": (0.5, 0, 1e-7)}}},
            "maniskill/X-v1 [camera.eye=[0.5, 0, 1e-07], camera.target=[0.0, 1, 2]]",
        ),
        (
            {"id": "tabletop/PickCube", "options": {"randomize": {"light": True, "camera": False}}},
            "tabletop/PickCube [randomize.camera=false, randomize.light=true]",
        ),
        (
            {"id": "X-v0", "options": {"text": 'so "called"', "kind": complex(1, 2)}},
            "X-v0 [kind=complex, text=so \\called\\]",
        ),
        (
            {"id": "X-v0", "wrappers": ({"name": "m:A"}, {"name": "m:B", "options": {"n": 2, "of": {"k": [1]}}})},
            "X-v0 [wrappers=[m:A, m:B [n=2, of.k=[1]]]]",
        ),
    ],
)
def test_a_task_is_named_by_its_id_and_the_settings_that_change_what_is_seen_or_done(
    settings: dict[str, Any], task: str
) -> None:
    wrappers = tuple(WrapperConfig(**wrapper) for wrapper in settings.get("wrappers", ()))
    assert EnvConfig(**{**settings, "wrappers": wrappers}).task == task


def test_names_leave_out_options_and_defaults_that_maniskill_has() -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(ManiSkillOptions)}
    assert set(NOT_IN_NAMES) <= set(defaults)
    assert DEFAULTS.items() <= defaults.items()
