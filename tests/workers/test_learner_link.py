"""The link to the learner of an asynchronous run: what is on disk has no gaps, whatever fails."""

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rewardlab.data.packed_batch import PackedBatch
from rewardlab.data.transition_log import TransitionLog
from rewardlab.errors import StorageError
from rewardlab.workers.async_learner import LearnerState
from rewardlab.workers.group import LocalWorker
from rewardlab.workers.learner_link import LearnerLink


class Listener:
    """Takes chunks, and learns nothing."""

    def exchange(self, chunks: Any, known_version: int) -> LearnerState:
        return LearnerState(None, 0, 0, 0, -1, {})


def rows(number: int) -> PackedBatch:
    return PackedBatch(TensorDict({"reward": torch.full((2, 1), float(number))}, batch_size=(2, 1)))


def started_worker() -> LocalWorker:
    worker = LocalWorker("learner", Listener)
    worker.start().result()
    return worker


def test_chunks_that_could_not_be_written_are_written_first_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TransitionLog(tmp_path)
    link = LearnerLink(started_worker(), log, restore=lambda worker: None)
    with monkeypatch.context() as patched:

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patched.setattr(os, "fsync", full)
        link.begin(0)
        link.send(rows(0), 2)
        end = time.monotonic() + 30
        while link._error is None and time.monotonic() < end:
            time.sleep(0.01)
        link._queue.put(link._unlogged[0].__class__(1, rows(1), 4))  # sent before the error was noticed
    link.end()
    assert log.numbers() == [0, 1]
    assert [chunk.env_steps for chunk in log.read(-1)] == [2, 4]
    with pytest.raises(StorageError, match="No space left on device"):
        link.send(rows(2), 6)


def test_nothing_is_written_behind_a_chunk_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TransitionLog(tmp_path)
    link = LearnerLink(started_worker(), log, restore=lambda worker: None)
    tries: list[int] = []
    append = TransitionLog.append

    def failing(self: TransitionLog, chunk: Any) -> None:
        tries.append(chunk.number)
        if chunk.number == 0:
            raise StorageError("could not write")
        append(self, chunk)

    monkeypatch.setattr(TransitionLog, "append", failing)
    link.send(rows(0), 2)
    link.send(rows(1), 4)
    with pytest.raises(StorageError, match="could not write"):
        link.end()
    assert tries == [0]
    assert log.numbers() == []
