"""The camera that `options.camera` describes."""

from typing import Any

import pytest

from rewardlab.envs.metaworld.drawing import FreeCamera, read_camera
from rewardlab.errors import ConfigError


def test_keys_that_are_not_given_keep_their_default() -> None:
    assert read_camera({"distance": 2, "lookat": [0, 1, 0]}) == FreeCamera(distance=2, lookat=(0, 1, 0))


@pytest.mark.parametrize(
    ("camera", "message"),
    [
        ({"distanse": 1}, "unknown key of options.camera 'distanse'. Did you mean 'distance'"),
        ({"lookat": [0, 1]}, r"options.camera.lookat: found \[0, 1\], expected 3 numbers"),
        ({"azimuth": [1, 2, 3]}, "options.camera.azimuth: .* expected a number"),
        ({"elevation": float("nan")}, "options.camera.elevation: found nan"),
        ({"distance": 0}, "options.camera.distance: found 0, expected more than 0"),
        ("corner", "options.camera: found 'corner', expected a mapping"),
    ],
)
def test_a_camera_that_cannot_be_is_refused(camera: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_camera(camera)
