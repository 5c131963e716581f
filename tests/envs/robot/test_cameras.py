"""Cameras: pictures over HTTP, a stream, a video device; and pictures that must not be used."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import cv2
import numpy as np
import pytest
from sim_robot import Sim, wait_for

from rewardlab.envs.cameras import Frame
from rewardlab.envs.robot.cameras import CameraConfig, CheckedCamera, make_camera
from rewardlab.envs.robot.protocol import RobotError
from rewardlab.errors import ConfigError


@pytest.mark.parametrize("ending", ["jpg", "mjpg"])
def test_pictures_over_http_show_the_scene(sim: Sim, ending: str) -> None:
    camera = make_camera("base", CameraConfig(url=f"http://{{robot}}/camera/base_camera.{ending}"), sim.address)
    with closing(camera):
        frame = camera.read()
        assert frame.shape == (32, 32, 3)
        assert frame.dtype == np.uint8
        expected = cv2.imdecode(
            np.frombuffer(sim.server.pictures.take("base_camera", sim.server.calls.faults), np.uint8), cv2.IMREAD_COLOR
        )[..., ::-1]
        assert np.abs(frame.astype(int) - expected).mean() < 6, "colours are RGB, and noise is all that differs"


def test_a_stream_shows_the_present(sim: Sim) -> None:
    camera = make_camera("base", CameraConfig(url="http://{robot}/camera/base_camera.mjpg"), sim.address)
    with closing(camera):
        camera.read()
        sim.faults(camera_black=True)

        def is_black() -> bool:
            try:
                camera.read()
            except RobotError as error:
                return "black" in str(error)
            return False

        wait_for(is_black)


def test_a_video_device_is_read_through_opencv(tmp_path: Path) -> None:
    """A file stands for the device: OpenCV opens both in the same way."""
    path = str(tmp_path / "video.avi")
    writer = cv2.VideoWriter(path, cv2.VideoWriter.fourcc(*"MJPG"), 10, (64, 48))
    frame = np.zeros((48, 64, 3), np.uint8)
    frame[..., 0] = 200  # OpenCV's order: blue
    for _ in range(20):
        writer.write(frame)
    writer.release()
    with closing(make_camera("front", CameraConfig(device=path), "")) as camera:
        seen = camera.read()
    assert seen.shape == (48, 64, 3)
    assert seen[..., 2].mean() > 180
    assert seen[..., 0].mean() < 30


def test_a_video_device_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    camera = make_camera("front", CameraConfig(device=str(tmp_path / "video9")), "")
    with closing(camera), pytest.raises(RobotError, match=r"camera 'front': no picture .*video9 cannot be opened"):
        camera.read()


@pytest.mark.parametrize("ending", ["jpg", "mjpg"])
def test_a_camera_that_is_gone_is_an_error_and_comes_back(sim: Sim, ending: str) -> None:
    camera = make_camera("base", CameraConfig(url=f"http://{{robot}}/camera/base_camera.{ending}"), sim.address)
    with closing(camera):
        camera.read()
        sim.faults(camera_gone=True)

        def is_gone() -> bool:
            try:
                camera.read()
            except RobotError as error:
                return "camera 'base'" in str(error)
            return False

        wait_for(is_gone)
        sim.faults(camera_gone=False)
        wait_for(lambda: not is_gone())


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (CameraConfig(), "expected either url or device"),
        (CameraConfig(url="http://a/b.jpg", device=0), "expected either url or device"),
        (CameraConfig(url="rtsp://camera/1"), "expected http://host:port/path"),
    ],
)
def test_a_camera_needs_one_place(config: CameraConfig, words: str) -> None:
    with pytest.raises(ConfigError, match=f"cameras.base.*{words}"):
        make_camera("base", config, "")


class Recorded:
    """Gives these pictures, one after the other."""

    name = "base"

    def __init__(self, frames: Iterator[Frame]) -> None:
        self._frames = frames

    def read(self) -> Frame:
        return next(self._frames)

    def close(self) -> None:
        pass


def test_the_very_same_picture_for_seconds_is_an_error() -> None:
    now = [0.0]
    still, other = np.full((4, 4, 3), 90, np.uint8), np.full((4, 4, 3), 91, np.uint8)
    frames = iter([still] * 8 + [other, other])
    camera = CheckedCamera(Recorded(frames), 2.0, clock=lambda: now[0])
    for now[0] in (0.0, 0.5, 1.0, 1.5, 2.0):
        camera.read()
    now[0] = 2.5
    with pytest.raises(RobotError, match=r"the very same picture for 2\.5 s; it is frozen"):
        camera.read()
    now[0] = 3.0
    with pytest.raises(RobotError, match="frozen"):
        camera.read()  # nothing changed, so trying again does not help
    now[0] = 5.0
    camera.read()  # nobody looked for two seconds: it may have changed in between
    now[0] = 5.5
    camera.read()
    camera.read()


def test_a_picture_without_light_is_an_error() -> None:
    camera = CheckedCamera(Recorded(iter([np.full((4, 4, 3), 3, np.uint8)])), 0.0)
    with pytest.raises(RobotError, match="its picture is black; is its cap on"):
        camera.read()
