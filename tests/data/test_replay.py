"""The ring of transitions: what it keeps, what it draws, what relabelling may touch."""

import io
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

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


def test_relabelling_changes_rewards_and_nothing_else() -> None:
    buffer = ReplayBuffer(20)
    buffer.add(transitions(0, 17))
    sizes: list[int] = []

    def negative(rows: Batch) -> Tensor:
        sizes.append(len(rows))
        return -rows["observation", "state"].squeeze(-1)

    buffer.relabel(negative, chunk=5)
    rows = buffer.state_dict()["rows"]
    assert sizes == [5, 5, 5, 2]
    assert torch.equal(rows["reward"], -torch.arange(17.0))
    assert torch.equal(rows["env_reward"], torch.arange(17.0))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda rows: rows["observation", "state"], r"shape \[8, 1\]; expected \[8\]"),
        (lambda rows: rows["reward"].where(rows["reward"] != 6, torch.nan), "row 6 is not finite"),
    ],
)
def test_relabelling_with_nonsense_changes_nothing(function: Any, words: str) -> None:
    buffer = ReplayBuffer(8)
    buffer.add(transitions(0, 8))
    with pytest.raises(DataError, match=words):
        buffer.relabel(function, chunk=4)
    assert torch.equal(buffer.state_dict()["rows"]["reward"], torch.arange(8.0))


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
    mixed = mixed_sample(replay, demos, 40, 0.25, dice())
    assert len(mixed) == 40
    assert int((mixed["action"] >= 50).sum()) == 10
    assert "success" not in mixed.keys()  # noqa: SIM118 - a column of one buffer only
    assert int((mixed_sample(replay, None, 40, 0.5, dice())["action"] >= 50).sum()) == 0
