"""Transitions that no checkpoint has yet, on disk."""

from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

from rewardlab.data.packed_batch import PackedBatch, pack
from rewardlab.data.transition_log import Chunk, TransitionLog
from rewardlab.errors import DataError


def chunk(number: int) -> Chunk:
    pictures = torch.randint(0, 256, (2, 3, 4, 4, 3), dtype=torch.uint8)
    observation = {"state": torch.randn(2, 3, 5), "images": {"a/b.c": pictures}}
    rewards = torch.randn(2, 3)
    rows = TensorDict(
        {"observation": observation, "reward": rewards, "env_reward": rewards, "terminated": rewards > 0},
        batch_size=[2, 3],
    )
    return Chunk(number, pack(rows), 6 * number)


def same(first: PackedBatch, second: PackedBatch) -> bool:
    return bool((first.unpack() == second.unpack()).all()) and first.frames.keys() == second.frames.keys()


def test_chunks_come_back_as_they_were(tmp_path: Path) -> None:
    log, chunks = TransitionLog(tmp_path / "log"), [chunk(number) for number in range(4)]
    for one in chunks:
        log.append(one)
    found = list(log.read(after=1))
    assert [one.number for one in found] == [2, 3]
    assert [one.env_steps for one in found] == [12, 18]
    assert all(same(one.batch, two.batch) for one, two in zip(found, chunks[2:], strict=True))
    log.forget(2)
    assert log.numbers() == [3]
    assert [one.number for one in log.read(after=2)] == [3]


def test_a_gap_and_a_damaged_chunk_are_named(tmp_path: Path) -> None:
    log = TransitionLog(tmp_path)
    for number in (0, 2):
        log.append(chunk(number))
    with pytest.raises(DataError, match=r"00000001\.safetensors is missing"):
        list(log.read(after=-1))
    path = tmp_path / "00000000.safetensors"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"00000000\.safetensors: not a whole file"):
        list(log.read(after=-1))


def test_what_a_killed_process_left_is_no_chunk(tmp_path: Path) -> None:
    log = TransitionLog(tmp_path)
    log.append(chunk(0))
    (tmp_path / ".00000001.999999.abc.tmp").write_bytes(b"half")
    assert log.numbers() == [0]
    assert len(list(log.read(after=-1))) == 1
