"""What runs in a process that has some of the copies: it answers the calls of a `ProcessGroup`, one after the other.

Torch is not imported here unless the environment does so: a process is to start in less than a second.
"""

import faulthandler
import os
import pickle
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import cv2
from gymnasium import spaces
from gymnasium.vector.utils import concatenate

from rewardlab.child_process import Answer, end_with_parent, packed_answer
from rewardlab.envs.cameras import Size
from rewardlab.envs.copies import CopyDescription, CopyGroup, CopyStep, Info
from rewardlab.envs.drawing_drivers import choose_drivers_on_import
from rewardlab.envs.processes import FramePlaces
from rewardlab.envs.shared_memory import SharedMemory, rows_of, shared_observations
from rewardlab.errors import ConfigError, DataError


class CopyProcess:
    """The copies of this process. Observations and frames go into shared memory, everything else is returned."""

    def __init__(self, name: str, observations: SharedMemory, frames: SharedMemory) -> None:
        self._name, self._memory, self._frames = name, observations, frames
        self._space: spaces.Space[Any] = spaces.Discrete(1)
        self._rows: Any = None  # of the observations of all copies; None: they are returned

    def build(self, makers: bytes) -> CopyDescription:
        with choose_drivers_on_import():
            self.group = CopyGroup(self._unpack(makers))
        description = self.group.describe()
        self._space = description.observation_space
        return description

    def _unpack(self, makers: bytes) -> Any:
        try:
            return pickle.loads(makers)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"'{self._name}' cannot be built in another process: {error}. Define and register it in a module that "
                "can be imported, or set env.train.processes=1"
            ) from error

    def share_observations(self, num_envs: int, rows: range) -> None:
        """From now on, write the observations of these copies into these rows."""
        arrays = shared_observations(self._space, num_envs, self._memory)
        self._rows = rows_of(arrays, slice(rows.start, rows.stop, rows.step))

    def reset(self, rows: Sequence[int], seeds: Sequence[int | None], options: Info | None) -> list[tuple[Any, Info]]:
        results = self.group.reset(rows, seeds, options)
        if self._rows is None:
            return results
        for row, (observation, _) in zip(rows, results, strict=True):
            concatenate(self._space, [observation], rows_of(self._rows, slice(row, row + 1)))
        return [(None, info) for _, info in results]

    def step(self, actions: Sequence[Any]) -> list[CopyStep]:
        results = self.group.step(list(actions))
        if self._rows is None:
            return results
        concatenate(self._space, [result.observation for result in results], self._rows)
        return [result.without_observation() for result in results]

    def draw(self, rows: Sequence[int], cameras: Sequence[str], size: Size, final: bool) -> FramePlaces:
        drawn = self.group.draw(rows, cameras, size, final)
        self._frames.reserve(sum(frames.nbytes for frames in drawn.values()))
        places: FramePlaces = {}
        offset = 0
        for camera, frames in drawn.items():
            self._frames.array(frames.shape, frames.dtype, offset)[:] = frames
            places[camera] = (frames.shape, str(frames.dtype), offset)
            offset += frames.nbytes
        return places

    def __getattr__(self, name: str) -> Any:
        return getattr(self.group, name)


def main(name: str, connection: int, parent: int, observations: int, frames: int) -> None:
    end_with_parent(parent)
    faulthandler.enable()
    cv2.setNumThreads(1)
    served = CopyProcess(name, SharedMemory(observations), SharedMemory(frames))
    shown: list[tuple[str, type[Warning]]] = []
    warnings.showwarning = lambda message, category, *_: shown.append((str(message), category))
    with Connection(connection) as channel:
        while True:
            try:
                number, method, args = pickle.loads(channel.recv_bytes())
            except (EOFError, OSError):  # the parent has closed its end
                break
            answer = _answer(served, number, method, args)
            answer.warnings, shown[:] = list(shown), []
            with suppress(OSError):  # closed in the meantime: the last message is to close the environments
                channel.send_bytes(packed_answer(answer, partial(_unsendable, name)))
    sys.stdout.flush()
    os._exit(0)  # what simulators do when Python takes them apart is of no interest


def _answer(served: CopyProcess, number: int, method: str, args: tuple[Any, ...]) -> Answer:
    try:
        return Answer(number, getattr(served, method)(*args))
    except BaseException as error:  # sys.exit() in an environment too
        return Answer(number, error=error, traceback="".join(traceback.format_exception(error)))


def _unsendable(name: str, reason: Exception) -> Exception:
    return DataError(
        f"'{name}' returns something that cannot be sent to another process ({reason}): keep it out of its infos, or "
        "set env.train.processes=1"
    )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
