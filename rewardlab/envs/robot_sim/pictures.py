"""Cameras of the simulated robot: pictures of the table as JPEG, drawn when somebody asks for one."""

import threading

import cv2
import numpy as np

from rewardlab.envs.robot_sim.bench import Bench
from rewardlab.envs.robot_sim.faults import Faults
from rewardlab.envs.tabletop.camera import CAMERAS
from rewardlab.envs.tabletop.render import render

QUALITY = 90
SENSOR_NOISE = 2.0  # of 255
_NOISE_SIZE = 64  # pixels by which the stored noise is larger than a picture


class Pictures:
    """Both cameras. Their noise makes each picture differ from the one before, as with a real camera."""

    def __init__(self, bench: Bench, image_size: int, seed: int) -> None:
        self._bench, self._size = bench, image_size
        self._rng = np.random.default_rng(seed)
        side = image_size + _NOISE_SIZE
        self._noise = np.round(SENSOR_NOISE * self._rng.standard_normal((side, side, 3))).astype(np.int16)
        self._frozen: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def take(self, camera: str, faults: Faults) -> bytes:
        """Return a JPEG."""
        if camera in faults.camera_black:
            return _encode(np.zeros((self._size, self._size, 3), np.uint8))
        with self._lock:
            if camera not in faults.camera_frozen:
                self._frozen.pop(camera, None)
            elif camera in self._frozen:
                return self._frozen[camera]
            row, column = self._rng.integers(0, _NOISE_SIZE, 2)
        world = self._bench.snapshot()
        frame = render(self._bench.task, world, self._bench.looks, camera, self._size, self._size)[0]
        noise = self._noise[row : row + self._size, column : column + self._size]
        jpeg = _encode(np.clip(frame + noise, 0, 255).astype(np.uint8))
        with self._lock:
            return self._frozen.setdefault(camera, jpeg) if camera in faults.camera_frozen else jpeg


def _encode(frame: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    _, jpeg = cv2.imencode(".jpg", np.ascontiguousarray(frame[..., ::-1]), [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return jpeg.tobytes()


PATHS = {f"/camera/{camera}.{ending}": camera for camera in CAMERAS for ending in ("jpg", "mjpg")}
