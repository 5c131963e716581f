"""Each picture once: in a packed batch, in a replay buffer, in a file; and never another picture than before."""

import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from rewardlab.data.episode_replay import EpisodeReplay
from rewardlab.data.packed_batch import FRAME, PackedBatch, pack, scored_pictures, unpacked
from rewardlab.data.replay import ReplayBuffer
from rewardlab.errors import DataError
from rewardlab.run_state import load_state, save_state
from rewardlab.types import Batch

CAMERA = "hand"


class World:
    """Environments that reset in the step in which an episode ends. No two of their pictures are equal."""

    def __init__(self, num_envs: int, size: int = 4, seed: int = 0, longest: int = 6, state: int = 2) -> None:
        self.num_envs, self.size, self.longest, self.state = num_envs, size, longest, state
        self.generator = torch.Generator().manual_seed(seed)
        self.taken = 0
        self.reset()

    def reset(self) -> None:
        self.now = self._picture_numbers(self.num_envs)

    def rollout(self, steps: int) -> Batch:
        rows = []
        for _ in range(steps):
            ended = torch.randint(self.longest, (self.num_envs,), generator=self.generator) == 0
            before, after = self.now, self._picture_numbers(self.num_envs)
            self.now = torch.where(ended, self._picture_numbers(self.num_envs), after)
            terminated = ended & (after % 2 == 0)
            rows.append((before, after, terminated, ended & ~terminated))
        before, after, terminated, truncated = (torch.stack(column) for column in zip(*rows, strict=True))
        columns = {
            "observation": self._observation(before),
            "next_observation": self._observation(after),
            "action": torch.randn(*before.shape, 4, generator=self.generator),
            "env_reward": torch.randn(before.shape, generator=self.generator),
            "terminated": terminated,
            "truncated": truncated,
            "success": terminated,
        }
        return TensorDict(columns, batch_size=before.shape)

    def _picture_numbers(self, count: int) -> Tensor:
        self.taken += count
        return torch.arange(self.taken - count, self.taken)

    def _observation(self, number: Tensor) -> dict[str, Any]:
        image = torch.zeros(*number.shape, self.size, self.size, 3, dtype=torch.uint8)
        for byte in range(3):
            image[..., byte] = (number >> 8 * byte).to(torch.uint8)[..., None, None]
        return {"state": number[..., None].float().repeat(1, 1, self.state), "images": {CAMERA: image}}


class NaiveReplay:
    """A ring of whole rows, which keeps each picture as often as a row has it."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.next = capacity, 0
        self.rows: list[Batch] = []

    def add(self, batch: Batch) -> None:
        for row in batch.unbind(0):
            self.rows[self.next : self.next + 1] = [row]
            self.next = (self.next + 1) % self.capacity

    def sample(self, count: int, generator: torch.Generator) -> Batch:
        chosen = torch.randint(len(self.rows), (count,), generator=generator)
        return torch.stack([self.rows[i] for i in chosen.tolist()])

    def different_pictures(self) -> int:
        columns = [torch.stack([row[part, "images", CAMERA] for row in self.rows]) for part in PARTS]
        return len(torch.cat(columns).flatten(1).unique(dim=0))


PARTS = ("observation", "next_observation")


def dice(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def equal(one: Batch, other: Batch) -> bool:
    def kinds(batch: Batch) -> dict[Any, Any]:
        return {key: value.dtype for key, value in batch.items(include_nested=True, leaves_only=True)}

    return kinds(one) == kinds(other) and bool((one == other).all())


def test_a_packed_rollout_has_each_picture_once_and_unpacks_to_the_same() -> None:
    rollout = World(3).rollout(7)
    packed = pack(rollout)
    last = int((rollout["terminated"] | rollout["truncated"]).sum())
    assert len(packed.frames[CAMERA]) == 8 * 3 + last  # what the lanes saw, and the last of each episode
    assert equal(packed.unpack(), rollout)
    assert equal(unpacked(rollout), rollout)
    assert equal(unpacked(pickle.loads(pickle.dumps(packed))), rollout)
    assert pack(rollout[:0]).unpack().batch_size == (0, 3)


def test_lanes_are_joined() -> None:
    worlds = World(3), World(2, seed=1)
    rollouts = [world.rollout(5) for world in worlds]
    ends = [rollout["terminated"] | rollout["truncated"] for rollout in rollouts]
    scored = [
        {CAMERA: rollout["next_observation", "images", CAMERA][end]}
        for rollout, end in zip(rollouts, ends, strict=True)
    ]
    lanes = [pack(rollout, frames, end) for rollout, frames, end in zip(rollouts, scored, ends, strict=True)]
    joined = PackedBatch.cat(lanes, dim=1)
    whole = TensorDict.cat(rollouts, dim=1)
    assert equal(joined.unpack().exclude(FRAME), whole)
    pictures, has_frame = scored_pictures(joined.rows, CAMERA, joined.frames)
    assert torch.equal(has_frame, torch.cat(ends, dim=1))
    assert torch.equal(pictures, whole["next_observation", "images", CAMERA][has_frame])


@pytest.mark.parametrize("capacity", [7, 50, 1000])
@pytest.mark.parametrize("num_envs", [1, 4])
def test_the_buffer_is_one_that_stores_whole_rows(capacity: int, num_envs: int) -> None:
    """Over random rollouts with ends, resets and the ring wrapping around, also from one saved state to the next."""
    world, buffer, naive = World(num_envs), ReplayBuffer(capacity), NaiveReplay(capacity)
    for number, steps in enumerate((3, 1, 1, 5, 0, 2, 40, 1, 6, 3, 9, 2)):
        if number % 4 == 3:
            world.reset()  # as after a checkpoint
        if steps:
            rollout = world.rollout(steps)
            buffer.add_rollout(rollout)
            naive.add(rollout.reshape(-1))
        assert len(buffer) == len(naive.rows)
        assert equal(buffer.sample(200, dice(number)), naive.sample(200, dice(number)))
        assert len(buffer.frames) == naive.different_pictures()
        if number % 3 == 2:
            file = io.BytesIO()
            torch.save(buffer.state_dict(), file)
            file.seek(0)
            state = torch.load(file, weights_only=True)
            assert len(state["frames"][CAMERA]) == naive.different_pictures()
            buffer = ReplayBuffer(capacity)
            buffer.load_state_dict(state)
            # A resumed run resets its environments; the pictures at which they stopped are not looked for.
            world.reset()


def test_pictures_of_whole_episodes_are_stored_once_too() -> None:
    world, replay, episodes = World(3), EpisodeReplay(40), []
    for number in range(30):
        if number % 10 == 9:
            replay.forget_unfinished()
            world.reset()
        episodes.append(world.rollout(4))
        replay.add_rollout(episodes[-1])
    key = ("next_observation", "images", CAMERA)
    batch, other = replay.sample_with(key, 300, "final", dice())
    assert torch.equal(batch[key][:, 0, 0, 0], batch["next_observation", "state"][:, 0].to(torch.uint8))
    assert torch.equal(batch["observation", "images", CAMERA][:, 0, 0, 0], batch["observation", "state"][:, 0].byte())
    stored = torch.cat([rollout[key].flatten(0, 1) for rollout in episodes])
    ends = torch.cat([(rollout["terminated"] | rollout["truncated"]).flatten() for rollout in episodes])
    last = {tuple(picture) for picture in stored[ends].flatten(1).tolist()}
    assert {tuple(picture) for picture in other.flatten(1).tolist()} <= last
    replay.forget_unfinished()
    rows = replay.state_dict()["rows"]
    shown = torch.cat([rows[part]["images"][CAMERA] for part in PARTS])
    assert len(replay.frames) == len(shown.unique())
    replay.load_state_dict(EpisodeReplay(40).state_dict())  # nothing
    assert len(replay.frames) == 0


def test_a_transition_takes_13_kilobytes_in_memory_and_on_disk(tmp_path: Path) -> None:
    """One camera at 64x64, a state of 24 numbers, episodes of about 50 steps, and a classifier that scores again."""
    world, buffer = World(8, size=64, longest=50, state=24), ReplayBuffer(2000)
    crossed, steps = 0, 0
    while steps < 2600:
        rollout = world.rollout(32)
        every = torch.ones(rollout.batch_size, dtype=torch.bool)
        batch = pack(rollout, {CAMERA: rollout["next_observation", "images", CAMERA].flatten(0, 1)}, every)
        crossed += len(pickle.dumps(batch))
        steps += rollout.numel()
        buffer.add_rollout(batch)
    assert len(buffer) == 2000
    assert buffer.nbytes / len(buffer) < 13_000
    assert crossed / steps < 13_500  # the observations after the last step of a rollout are in the next one too
    saved = save_state(tmp_path / "state", {"replay": buffer.state_dict()}, {"model_type": "policy"})
    assert sum(file.stat().st_size for file in saved.iterdir()) / len(buffer) < 13_000
    restored = ReplayBuffer(2000)
    restored.load_state_dict(load_state(saved)[0]["replay"])
    assert restored.nbytes / len(restored) < 13_000
    assert equal(restored.sample(100, dice()).exclude(FRAME), buffer.sample(100, dice()).exclude(FRAME))
    drawn = restored.sample(100, dice())
    pictures, _ = scored_pictures(drawn, CAMERA, restored.frames.pictures)
    assert torch.equal(pictures, drawn["next_observation", "images", CAMERA])


def test_a_scored_picture_that_the_policy_sees_is_not_stored_again() -> None:
    world, buffer = World(3), ReplayBuffer(100)
    rollout = world.rollout(6)
    after = rollout["next_observation", "images", CAMERA]
    every = torch.ones(6, 3, dtype=torch.bool)
    buffer.add_rollout(pack(rollout, {CAMERA: after.flatten(0, 1)}, every))
    plain = ReplayBuffer(100)
    plain.add_rollout(rollout)
    assert len(buffer.frames) == len(plain.frames)
    drawn = buffer.sample(50, dice())
    pictures, _ = scored_pictures(drawn, CAMERA, buffer.frames.pictures)
    assert torch.equal(pictures, drawn["next_observation", "images", CAMERA])
    # Of another size, as where an observation has a larger picture than the reward model: beside it.
    small = after[:, :, ::2, ::2].flatten(0, 1)
    both = ReplayBuffer(100)
    both.add_rollout(pack(rollout, {CAMERA: small}, every))
    assert len(both.frames) == len(plain.frames) + len(small)
    restored = ReplayBuffer(100)
    restored.load_state_dict(both.state_dict())
    for each in (both, restored):
        drawn = each.sample(50, dice())
        pictures, _ = scored_pictures(drawn, CAMERA, each.frames.pictures)
        assert torch.equal(pictures, drawn["next_observation", "images", CAMERA][:, ::2, ::2])


@pytest.mark.parametrize("frames", [True, False])
def test_a_state_of_an_earlier_version_is_loaded_and_takes_half_the_space(frames: bool) -> None:
    """They had images in their rows, and slots of all cameras together in the column `frame`."""
    rollout = World(3).rollout(8)
    rows = rollout.reshape(-1)
    has_frame = rows["terminated"] | rows["truncated"]
    scored = rows["next_observation", "images", CAMERA][has_frame]
    old = {"rows": rows.to_dict(), "frames": {}, "size": 24, "next": 24, "capacity": 30}
    if frames:
        slots = torch.full((24,), -1)
        slots[has_frame] = torch.randperm(len(scored), generator=dice())  # as they were in the old store
        old["rows"]["frame"], old["frames"] = slots, {CAMERA: scored}  # type: ignore[index]
    buffer, expected = ReplayBuffer(30), ReplayBuffer(30)
    buffer.load_state_dict(old)
    expected.add_rollout(pack(rollout, {CAMERA: scored} if frames else None, has_frame.view(8, 3)))
    assert equal(buffer.sample(100, dice()).exclude(FRAME), expected.sample(100, dice()).exclude(FRAME))
    assert len(buffer.frames) == len(expected.frames) == 9 * 3 + len(scored)
    if frames:
        drawn = buffer.sample(100, dice())
        pictures, there = scored_pictures(drawn, CAMERA, buffer.frames.pictures)
        assert torch.equal(pictures, drawn["next_observation", "images", CAMERA][there])
    else:
        buffer.add_rollout(World(2, seed=3).rollout(4))  # the columns are those of a new run
        assert len(buffer) == 30


def test_pictures_that_do_not_fit_are_refused_and_change_nothing() -> None:
    buffer = ReplayBuffer(20)
    buffer.add_rollout(World(2).rollout(5))
    before = buffer.sample(50, dice())
    with pytest.raises(
        DataError,
        match=r"observation.images.hand are \[6, 6, 3\] torch.uint8, those stored before \[4, 4, 3\].*image_size",
    ):
        buffer.add_rollout(World(2, size=6).rollout(8))
    floats = World(2).rollout(8)
    floats["observation", "images", CAMERA] = floats["observation", "images", CAMERA].float()
    floats["next_observation", "images", CAMERA] = floats["next_observation", "images", CAMERA].float()
    with pytest.raises(DataError, match=r"torch.float32, those stored before \[4, 4, 3\] torch.uint8"):
        buffer.add_rollout(floats)
    assert equal(buffer.sample(50, dice()), before)


def test_a_damaged_state_is_refused() -> None:
    buffer, other = ReplayBuffer(20), ReplayBuffer(20)
    buffer.add_rollout(World(2).rollout(5))
    other.add_rollout(World(2, seed=1).rollout(3))
    before = other.sample(50, dice())
    fewer = buffer.state_dict()
    fewer["frames"] = {CAMERA: fewer["frames"][CAMERA][:-1]}
    with pytest.raises(DataError, match=r"refers to the pictures 2 to \d+ of \d+ in 'hand'.*damaged"):
        other.load_state_dict(fewer)
    with pytest.raises(DataError, match="the saved replay buffer has no pictures of hand"):
        other.load_state_dict({**buffer.state_dict(), "frames": {}})
    assert equal(other.sample(50, dice()), before)
