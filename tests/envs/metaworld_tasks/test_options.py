"""Options of Meta-World tasks are checked before the simulator is imported."""

from typing import Any

import pytest

from rewardlab.envs.metaworld.options import FreeCamera, MetaWorldOptions, read_options
from rewardlab.errors import ConfigError

TASK = "metaworld/reach-v3"


def test_keys_that_are_not_given_keep_their_default() -> None:
    read = read_options(TASK, {"camera": {"distance": 2, "lookat": [0, 1, 0]}, "show_goal": True})
    assert read == MetaWorldOptions(camera=FreeCamera(distance=2, lookat=(0, 1, 0)), show_goal=True)
    assert read_options(TASK, {}) == MetaWorldOptions()


@pytest.mark.parametrize(
    ("camera", "message"),
    [
        ({"distanse": 1}, "unknown key of options.camera 'distanse'. Did you mean 'distance'"),
        ({"lookat": [0, 1]}, r"options.camera.lookat: found \[0, 1\], expected 3 numbers"),
        ({"lookat": [0, 10**400, 0]}, r"options.camera.lookat: found \[0, 1.*, expected 3 numbers"),
        ({"azimuth": [1, 2, 3]}, "options.camera.azimuth: .* expected a number"),
        ({"elevation": float("nan")}, "options.camera.elevation: found NaN, expected a finite number"),
        ({"distance": 0}, "options.camera.distance: found 0, expected a number above 0"),
        ("corner", 'options.camera: found "corner", expected a block with lookat, distance, azimuth, elevation'),
    ],
)
def test_a_camera_that_cannot_be_is_refused(camera: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_options(TASK, {"camera": camera})
