"""Options of ManiSkill tasks are checked before the simulator is imported."""

from typing import Any

import pytest

from rewardlab.envs.maniskill.options import CameraPose, ManiSkillOptions, read_options
from rewardlab.errors import ConfigError

TASK = "maniskill/PickCube-v1"


def test_options_are_read() -> None:
    read = read_options(TASK, {"control_mode": "pd_ee_delta_pose", "camera": {"eye": [1, 0, 1], "target": [0, 0, 0]}})
    assert read.control_mode == "pd_ee_delta_pose"
    assert read.camera == CameraPose(eye=(1, 0, 1), target=(0, 0, 0))
    assert read_options(TASK, {"camera": "task"}).camera == "task"
    assert read_options(TASK, {}) == ManiSkillOptions()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"visual": "cheap"}, "unknown option of 'maniskill/PickCube-v1' 'visual'. Did you mean 'visuals'"),
        ({"visuals": "fast"}, "options.visuals: unknown value 'fast'.*cheap, full"),
        ({"show_goal": 1}, "options.show_goal: found 1"),
        ({"render_mode": "ansi"}, "options.render_mode: unknown value 'ansi'.*rgb_array"),
        ({"sim_config": 3}, "options.sim_config: found 3"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_options(TASK, options)


EYE, TARGET, BLOCK = [1, 0, 1], [0, 0, 0], "expected task or a block with eye, target, fov"


@pytest.mark.parametrize(
    ("camera", "message"),
    [
        ("tsk", f'options.camera: found "tsk", {BLOCK}'),
        ([1, 0, 1], f"options.camera: found [1, 0, 1], {BLOCK}"),
        ({"eye": EYE}, "options.camera.target: not given, but required"),
        ({"eye": EYE, "traget": TARGET}, "unknown key of options.camera 'traget'. Did you mean 'target'? Choices: "),
        ({"eye": [1, 0], "target": TARGET}, "options.camera.eye: found [1, 0], expected 3 numbers: x, y, z in metres"),
        ({"eye": [1, 0, "a"], "target": TARGET}, 'options.camera.eye: found [1, 0, "a"], expected 3 numbers'),
        ({"eye": EYE, "target": TARGET, "fov": 10**400}, "options.camera.fov: found 10000000000"),
        ({"eye": EYE, "target": EYE}, "options.camera.target: found the same point as eye, [1.0, 0.0, 1.0], expected"),
        (
            {"eye": EYE, "target": TARGET, "fov": 40},
            "options.camera.fov: found 40, expected the vertical field of",
        ),
        ({"eye": EYE, "target": TARGET, "fov": "wide"}, 'options.camera.fov: found "wide", expected the vertical'),
    ],
)
def test_a_camera_that_cannot_be_is_one_line_about_its_key(camera: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_options(TASK, {"camera": camera})
    assert str(caught.value).startswith(f"environment '{TASK}': {message}")
    assert ";" not in str(caught.value)
    assert "\n" not in str(caught.value)
