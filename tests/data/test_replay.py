"""The ring of transitions: what it keeps, what it draws, what relabelling may touch."""

import io
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from rewardlab.data.packed_batch import FRAME, PackedBatch, pack, scored_pictures
from rewardlab.data.replay import ReplayBuffer, mixed_sample
from rewardlab.errors import DataError
from rewardlab.types import Batch


def transitions(first: int, count: int, **more: Tensor) -> Batch:
    """Rows numbered from `first`, the number in each of their columns."""
    number = torch.arange(first, first + count)
    observation = {
        "state": number[:, None].float(),
        "images": {"hand": number.to(torch.uint8)[:, None, None, None].repeat(1, 4, 4, 3)},
    }
    columns: dict[str, Any] = {
        "observation": observation,
        "action": number,
        "reward": number.float(),
        "env_reward": number.float(),
        "terminated": number % 2 == 0,
    }
    return TensorDict(columns | more, batch_size=[count])


def numbers(buffer: ReplayBuffer) -> list[int]:
    return [] if not len(buffer) else sorted(buffer.state_dict()["rows"]["action"].tolist())


def dice(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_newest_rows_are_kept_when_the_ring_wraps() -> None:
    buffer = ReplayBuffer(10)
    first = 0
    for count in (4, 4, 4, 1, 7, 0, 10):
        buffer.add(transitions(first, count))
        first += count
        assert numbers(buffer) == list(range(max(0, first - 10), first))
    buffer.add(transitions(100, 23))
    assert numbers(buffer) == list(range(113, 123))
    buffer.add(transitions(200, 2))
    assert numbers(buffer) == [*range(115, 123), 200, 201]
    assert len(buffer) == 10


def test_a_drawn_row_is_one_that_was_added_in_every_column() -> None:
    buffer = ReplayBuffer(50)
    buffer.add(transitions(0, 30))
    drawn = buffer.sample(500, dice())
    number = drawn["action"]
    assert set(number.tolist()) == set(range(30))
    assert torch.equal(drawn["observation", "state"].squeeze(-1), number.float())
    assert drawn["observation", "images", "hand"].dtype == torch.uint8
    assert torch.equal(drawn["observation", "images", "hand"][:, 3, 3, 2], number.to(torch.uint8))
    assert torch.equal(drawn["terminated"], number % 2 == 0)
    assert torch.equal(buffer.sample(500, dice())["action"], number)


def test_what_was_added_is_copied() -> None:
    buffer, batch = ReplayBuffer(5), transitions(0, 3)
    buffer.add(batch)
    batch["action"].zero_()
    buffer.sample(3, dice())["action"].zero_()
    assert numbers(buffer) == [0, 1, 2]


def test_relabelling_changes_the_given_columns_and_nothing_else() -> None:
    buffer = ReplayBuffer(20)
    buffer.add(transitions(0, 17))
    sizes: list[int] = []

    def negative(rows: Batch) -> Batch:
        sizes.append(len(rows))
        return TensorDict({"reward": -rows["observation", "state"].squeeze(-1)}, batch_size=rows.batch_size)

    buffer.relabel(negative, chunk=5)
    rows = buffer.state_dict()["rows"]
    assert sizes == [5, 5, 5, 2]
    assert torch.equal(rows["reward"], -torch.arange(17.0))
    assert torch.equal(rows["env_reward"], torch.arange(17.0))


@pytest.mark.parametrize("broken", ["another column", "an error", "fewer rows"])
def test_relabelling_with_nonsense_changes_nothing(broken: str) -> None:
    buffer = ReplayBuffer(8)
    buffer.add(transitions(0, 8))

    def function(rows: Batch) -> Batch:
        if broken == "an error" and rows["action"][0] == 4:
            raise DataError("the model is broken")
        name = "rewrd" if broken == "another column" else "reward"
        rows = rows[1:] if broken == "fewer rows" else rows
        return TensorDict({name: -rows["reward"]}, batch_size=rows.batch_size)

    with pytest.raises(DataError):
        buffer.relabel(function, chunk=4)
    assert torch.equal(buffer.state_dict()["rows"]["reward"], torch.arange(8.0))


def with_frames(first: int, count: int) -> PackedBatch:
    """Every other row has a frame to score, which shows the number of its row."""
    rows = transitions(first, count)
    has_frame = rows["action"] % 2 == 0
    pictures = rows["action"][has_frame].to(torch.uint8)[:, None, None, None].repeat(1, 2, 2, 3)
    return pack(rows, {"side": pictures}, has_frame)


def shown(buffer: ReplayBuffer) -> None:
    """Each row that should have a frame has its own."""
    drawn = buffer.sample(200, dice())
    pictures, has_frame = scored_pictures(drawn, "side", buffer.frames.pictures)
    assert torch.equal(has_frame, drawn["action"] % 2 == 0)
    assert torch.equal(pictures[:, 1, 1, 2].long(), drawn["action"][has_frame])


def test_frames_leave_the_store_with_their_rows() -> None:
    buffer = ReplayBuffer(10)
    first = 0
    for count in (4, 4, 4, 1, 7, 10, 25, 3):
        buffer.add(with_frames(first, count))
        first += count
        shown(buffer)
        stored = range(max(0, first - 10), first)
        assert len(buffer.frames) == len(stored) + len([n for n in stored if n % 2 == 0])
    restored = ReplayBuffer(10)
    restored.load_state_dict(buffer.state_dict())
    shown(restored)
    assert len(restored.frames) == len(buffer.frames)
    restored.load_state_dict(buffer.state_dict())  # instead of what it has
    assert len(restored.frames) == len(buffer.frames)


def test_no_frame_at_all_is_stored_and_restored_too() -> None:
    """In terminal mode no episode may have ended yet."""
    buffer = ReplayBuffer(10)
    nothing = torch.zeros(0, 2, 2, 3, dtype=torch.uint8)
    buffer.add(pack(transitions(0, 3), {"side": nothing}, torch.zeros(3, dtype=torch.bool)))
    restored = ReplayBuffer(10)
    restored.load_state_dict(buffer.state_dict())
    for each in (buffer, restored):
        assert (each.sample(5, dice())[FRAME, "side"] == -1).all()
        assert len(each.frames) == 3  # of observations
    larger = pack(transitions(3, 1), {"side": torch.zeros(1, 4, 4, 3, dtype=torch.uint8)}, torch.tensor([True]))
    with pytest.raises(DataError, match=r"frame.side are \[4, 4, 3\] torch.uint8, those stored before \[2, 2, 3\]"):
        buffer.add(larger)


def test_a_frame_for_each_row_that_says_so() -> None:
    with pytest.raises(DataError, match="found 3 frames of 'side' for 2 transitions"):
        pack(transitions(0, 3), {"side": torch.zeros(3, 2, 2, 3)}, torch.tensor([True, False, True]))


@pytest.mark.parametrize("added", [0, 6, 14])
def test_a_restored_buffer_goes_on_as_the_old_one(added: int) -> None:
    old, new = ReplayBuffer(10), ReplayBuffer(10)
    if added:
        old.add(transitions(0, added))
    file = io.BytesIO()
    torch.save(old.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert not added or len(state["rows"]["action"]) == min(added, 10)  # only what is filled
    new.load_state_dict(state)
    for buffer in (old, new):
        buffer.add(transitions(50, 3))
    assert torch.equal(old.sample(100, dice())["action"], new.sample(100, dice())["action"])
    with pytest.raises(DataError, match="holds 10 rows, this one 7"):
        ReplayBuffer(7).load_state_dict(state)


def test_rows_of_another_kind_are_refused() -> None:
    buffer = ReplayBuffer(10)
    with pytest.raises(DataError, match="empty"):
        buffer.sample(1, dice())
    buffer.add(transitions(0, 2))
    with pytest.raises(DataError, match="success"):
        buffer.add(transitions(0, 2, success=torch.zeros(2, dtype=torch.bool)))
    with pytest.raises(DataError, match=r"batch size \[2, 2\]"):
        buffer.add(transitions(0, 4).reshape(2, 2))


def test_a_mixed_batch_has_its_share_of_demonstrations() -> None:
    replay, demos = ReplayBuffer(100), ReplayBuffer(100)
    replay.add(transitions(0, 20, success=torch.zeros(20, dtype=torch.bool)))
    demos.add(transitions(50, 5))
    generator = dice()

    def sample(buffer: ReplayBuffer, count: int) -> Batch:
        return buffer.sample(count, generator)

    mixed = mixed_sample(replay, [demos], 40, 0.25, sample, generator)
    assert len(mixed) == 40
    assert int((mixed["action"] >= 50).sum()) == 10
    assert "success" not in mixed.keys()  # noqa: SIM118 - a column of one buffer only
    assert int((mixed_sample(replay, [], 40, 0.5, sample, generator)["action"] >= 50).sum()) == 0
