"""Cameras of a robot: pictures over HTTP (JPEG or MJPEG), or of a video device of this machine.

A frame that is too old, cannot be decoded, is black, or stays bit for bit the same for seconds is an error: a policy
must not act on it, and a classifier must not learn from it.
"""

import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Protocol

import cv2
import numpy as np

from rewardlab.config.schema import section
from rewardlab.envs.cameras import Frame
from rewardlab.envs.robot.http_client import HttpClient
from rewardlab.envs.robot.protocol import RobotError
from rewardlab.errors import ConfigError

TIMEOUT = 1.0  # seconds to wait for a picture
OLDEST = 0.5  # seconds: of a camera that sends by itself
FROZEN = 2.0  # seconds of the very same picture; a real camera's noise makes each one differ
PAUSE = 1.0  # seconds between two looks, after which nobody knows whether the picture changed in between
BLACK = 3  # brightness, of 255, that no pixel of a black picture exceeds
MJPEG_ENDINGS = (".mjpg", ".mjpeg", "mjpg/video.mjpg")


@section
class CameraConfig:
    """Exactly one of `url` and `device`."""

    url: str | None = None  # of a JPEG, or of an MJPEG stream (.mjpg); {robot} stands for the robot's host:port
    device: int | str | None = None  # number or path of a video device, for OpenCV
    frozen_seconds: float = FROZEN  # the same picture for so long is an error; 0 = do not look


class Camera(Protocol):
    name: str

    def read(self) -> Frame:
        """Return the newest picture, RGB."""

    def close(self) -> None: ...


def make_camera(name: str, config: CameraConfig, robot: str) -> "CheckedCamera":
    """Build the camera `name` of the robot at `robot`, host:port."""
    if (config.url is None) == (config.device is None):
        raise ConfigError(f"env.train.options.cameras.{name}: expected either url or device")
    camera: Camera
    if config.device is not None:
        camera = DeviceCamera(name, config.device)
    else:
        url = str(config.url).replace("{robot}", robot)
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ConfigError(f"env.train.options.cameras.{name}.url: found {url!r}, expected http://host:port/path")
        is_stream = parts.path.lower().endswith(MJPEG_ENDINGS)
        camera = StreamCamera(name, url) if is_stream else JpegCamera(name, url)
    return CheckedCamera(camera, config.frozen_seconds)


class CheckedCamera:
    """A camera whose pictures are looked at before they are used."""

    def __init__(self, camera: Camera, frozen_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = camera.name
        self._camera, self._frozen_seconds, self._clock = camera, frozen_seconds, clock
        self._last: Frame | None = None
        self._same_since = self._looked = 0.0

    def read(self) -> Frame:
        frame = self._camera.read()
        if frame.max() <= BLACK:
            raise RobotError(f"camera '{self.name}': its picture is black; is its cap on, or is it dark?")
        now = self._clock()
        paused, self._looked = now - self._looked > PAUSE, now
        if self._last is None or paused or not np.array_equal(frame, self._last):
            self._last, self._same_since = frame, now
        elif self._frozen_seconds and now - self._same_since > self._frozen_seconds:
            raise RobotError(
                f"camera '{self.name}': the very same picture for {now - self._same_since:.1f} s; it is frozen. (A "
                "still scene of a camera without noise: env.train.options.cameras.<name>.frozen_seconds=0)"
            )
        return frame

    def close(self) -> None:
        self._camera.close()


class JpegCamera:
    """Asks for each picture when it is needed, so that it shows the present."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        parts = urllib.parse.urlsplit(url)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        address = f"camera '{name}' at http://{parts.netloc}"
        self._client = HttpClient(parts.hostname or "", parts.port or 80, TIMEOUT, address)

    def read(self) -> Frame:
        return decode(self._client.request("GET", self._path), self.name)

    def close(self) -> None:
        self._client.close()


class NewestFrame:
    """Holds the newest picture of a camera that sends by itself; a thread reads it, so that nothing is buffered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._ready = threading.Condition()
        self._frame: Frame | None = None
        self._stamp = 0.0
        self._error: str | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"camera {name}", daemon=True)
        self._thread.start()

    def read(self) -> Frame:
        with self._ready:
            self._ready.wait_for(lambda: self._is_new() or self._error is not None, TIMEOUT)
            if self._frame is None or not self._is_new():
                raise RobotError(f"camera '{self.name}': no picture ({self._error or 'it took too long'})")
            return self._frame

    def _is_new(self) -> bool:
        return self._frame is not None and time.monotonic() - self._stamp < OLDEST

    def close(self) -> None:
        self._closed = True
        self._thread.join(TIMEOUT)

    def _put(self, frame: Frame) -> None:
        with self._ready:
            self._frame, self._stamp, self._error = frame, time.monotonic(), None
            self._ready.notify_all()

    def _run(self) -> None:
        while not self._closed:
            try:
                self._read_frames()
            except (OSError, RobotError, ValueError, cv2.error) as error:
                with self._ready:
                    self._error = str(error)
                    self._ready.notify_all()
            if not self._closed:
                time.sleep(0.2)  # then it is opened again

    def _read_frames(self) -> None:
        """Open the camera and put its pictures until it is closed."""
        raise NotImplementedError


class StreamCamera(NewestFrame):
    """An MJPEG stream: JPEGs one after the other, without end."""

    def __init__(self, name: str, url: str) -> None:
        self._url = url
        super().__init__(name)

    def _read_frames(self) -> None:
        with urllib.request.urlopen(self._url, timeout=TIMEOUT) as stream:
            buffer = b""
            while not self._closed:
                if not (piece := stream.read1(65536)):
                    raise RobotError("its stream has ended")
                buffer += piece
                end = buffer.rfind(b"\xff\xd9")  # the newest complete JPEG; older ones are not decoded
                start = buffer.rfind(b"\xff\xd8", 0, end) if end >= 0 else -1
                if start >= 0:
                    self._put(decode(buffer[start : end + 2], self.name))
                    buffer = buffer[end + 2 :]
                elif len(buffer) > 10_000_000:
                    raise RobotError("its stream has no JPEG in 10 MB")


class DeviceCamera(NewestFrame):
    """A video device of this machine, such as /dev/video0."""

    def __init__(self, name: str, device: int | str) -> None:
        self._device = device
        super().__init__(name)

    def _read_frames(self) -> None:
        capture = cv2.VideoCapture(self._device)
        try:
            if not capture.isOpened():
                raise RobotError(f"the video device {self._device} cannot be opened")
            while not self._closed:
                grabbed, frame = capture.read()
                if not grabbed:
                    raise RobotError(f"the video device {self._device} gives no pictures")
                self._put(np.ascontiguousarray(frame[..., ::-1]))  # OpenCV's are BGR
        finally:
            capture.release()


def decode(content: bytes, name: str) -> Frame:
    """Return the picture of a JPEG, RGB."""
    data = np.frombuffer(content, np.uint8)
    frame = cv2.imdecode(data, cv2.IMREAD_COLOR) if len(data) else None
    if frame is None:
        raise RobotError(f"camera '{name}': its answer of {len(content)} bytes is no picture; expected a JPEG")
    return np.ascontiguousarray(frame[..., ::-1])


def read_all(cameras: Mapping[str, CheckedCamera]) -> dict[str, Frame]:
    """Return the present picture of each camera."""
    return {name: camera.read() for name, camera in cameras.items()}
