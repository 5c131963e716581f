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
    assert read_options(TASK, {}) == ManiSkillOptions()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"visual": "cheap"}, "unknown option of 'maniskill/PickCube-v1' 'visual'. Did you mean 'visuals'"),
        ({"visuals": "fast"}, "options.visuals: unknown value 'fast'.*cheap, full"),
        ({"show_goal": 1}, "options.show_goal: found 1"),
        ({"camera": {"eye": [1, 0], "target": [0, 0, 0]}}, r"options.camera.*3 numbers: x, y, z"),
        ({"camera": {"eye": [1, 0, 1]}}, r"options.camera.*target"),
        ({"camera": {"eye": [1, 0, 1], "target": [0, 0, 0], "fov": 60}}, r"options.camera.*fov.*3\.14"),
        ({"camera": {"eye": [1, 0, 1], "target": [1, 0, 1]}}, "options.camera.*eye and target are the same point"),
        ({"render_mode": "ansi"}, "options.render_mode: unknown value 'ansi'.*rgb_array"),
        ({"sim_config": 3}, "options.sim_config: found 3"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_options(TASK, options)
