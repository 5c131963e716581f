"""The ring of whole episodes: what enters it, and from which rows another one is drawn."""

import io
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rewardlab.data.episode_replay import EpisodeReplay, WholeEpisodes
from rewardlab.errors import DataError
from rewardlab.types import Batch

ACHIEVED = ("next_observation", "achieved_goal")
STRATEGIES: list[Any] = ["final", "future", "episode"]


class Walkers:
    """Environments whose episodes have random lengths. A row knows its episode and step: it is what is achieved."""

    def __init__(self, num_envs: int, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.num_envs = num_envs
        self.restart()

    def restart(self) -> None:
        self.step = [0] * self.num_envs
        self.length = [self._new_length() for _ in range(self.num_envs)]
        self.episode = torch.randint(1 << 40, (self.num_envs,), generator=self.generator).tolist()

    def _new_length(self) -> int:
        return int(torch.randint(1, 12, (), generator=self.generator))

    def rollout(self, steps: int) -> Batch:
        shape = (steps, self.num_envs)
        facts = torch.zeros(*shape, 3, dtype=torch.int64)  # episode, step, length
        for t in range(steps):
            for env in range(self.num_envs):
                facts[t, env] = torch.tensor([self.episode[env], self.step[env], self.length[env]])
                self.step[env] += 1
                if self.step[env] == self.length[env]:
                    self.step[env], self.length[env] = 0, self._new_length()
                    self.episode[env] += 1
        last = facts[..., 1] == facts[..., 2] - 1
        columns = {
            "next_observation": {"achieved_goal": facts},
            "reward": torch.zeros(shape),
            "terminated": last & (facts[..., 0] % 2 == 0),
            "truncated": last & (facts[..., 0] % 2 == 1),
        }
        return TensorDict(columns, batch_size=shape)


def dice(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def stored(replay: EpisodeReplay) -> set[tuple[int, ...]]:
    rows = replay.state_dict()["rows"]["next_observation"]["achieved_goal"] if len(replay) else torch.zeros(0, 3)
    return {tuple(row) for row in rows.tolist()}


def ended_rows(rollouts: list[Batch]) -> set[tuple[int, ...]]:
    """Of all that happened, the rows of episodes that have ended."""
    rows = torch.cat([rollout[ACHIEVED].reshape(-1, 3) for rollout in rollouts]).tolist()
    ended = {episode for episode, step, length in rows if step == length - 1}
    return {tuple(row) for row in rows if row[0] in ended}


def test_episodes_enter_whole_and_once_they_have_ended() -> None:
    walkers, replay, seen = Walkers(4), EpisodeReplay(10_000), []
    for steps in (1, 1, 3, 0, 20, 7):
        seen.append(walkers.rollout(steps))
        replay.add_rollout(seen[-1])
        assert stored(replay) == ended_rows(seen)
        assert len(replay) == len(ended_rows(seen))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_other_row_is_of_the_same_episode_however_often_the_ring_wrapped(strategy: Any) -> None:
    walkers, replay, seen = Walkers(5), EpisodeReplay(61), []
    generator = dice()
    for _ in range(60):
        seen.append(walkers.rollout(9))
        replay.add_rollout(seen[-1])
        living = stored(replay)
        batch, other = replay.sample_with(ACHIEVED, 300, strategy, generator)
        episode, step, length = batch[ACHIEVED].unbind(-1)
        assert torch.equal(other[:, 0], episode)
        assert {tuple(row) for row in other.tolist()} <= living
        if strategy == "final":
            assert torch.equal(other[:, 1], length - 1)
        if strategy == "future":
            assert (other[:, 1] >= step).all()
    assert len(ended_rows(seen)) > 20 * len(replay) == 20 * 61


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_row_that_may_be_drawn_is_drawn_as_often_as_the_others(strategy: Any) -> None:
    walkers, replay = Walkers(3), EpisodeReplay(40)
    for _ in range(10):
        replay.add_rollout(walkers.rollout(10))
    batch, other = replay.sample_with(ACHIEVED, 60_000, strategy, dice())
    drawn, chosen = batch[ACHIEVED], other[:, 1]
    living = sorted(stored(replay))
    for row in living:
        here = (drawn == torch.tensor(row)).all(-1)
        assert int(here.sum()) == pytest.approx(60_000 / 40, rel=0.15)
        same = [step for episode, step, _ in living if episode == row[0]]
        possible = {"final": same[-1:], "future": [s for s in same if s >= row[1]], "episode": same}[strategy]
        often = chosen[here].bincount(minlength=12).tolist()
        assert [step for step, count in enumerate(often) if count] == possible
        assert min(often[step] for step in possible) > 0.5 * int(here.sum()) / len(possible)


def test_an_episode_longer_than_the_ring_keeps_its_end() -> None:
    replay = EpisodeReplay(5)
    rows = TensorDict(
        {
            "next_observation": {"achieved_goal": torch.arange(12)[:, None]},
            "terminated": torch.arange(12) == 11,
            "truncated": torch.zeros(12, dtype=torch.bool),
        },
        batch_size=[12],
    )
    replay.add(rows)
    _, other = replay.sample_with(ACHIEVED, 200, "episode", dice())
    assert set(other.flatten().tolist()) == {7, 8, 9, 10, 11}
    assert replay.sample(3, dice()).keys() == rows.keys()
    with pytest.raises(DataError, match="the last row does not end its episode"):
        replay.add(rows[:4])


def test_rows_of_unfinished_episodes_are_relabelled_too() -> None:
    walkers, replay = Walkers(3), EpisodeReplay(100)
    replay.add_rollout(walkers.rollout(15))
    replay.relabel(lambda rows: TensorDict({"reward": torch.ones(len(rows))}, batch_size=rows.batch_size))
    held_back = replay._episodes.unfinished
    assert held_back is not None
    assert len(held_back) > 0
    assert (held_back["reward"] == 1).all()
    assert (replay.sample(50, dice())["reward"] == 1).all()


def test_what_environments_had_begun_is_forgotten_where_they_start_afresh() -> None:
    walkers, replay = Walkers(3), EpisodeReplay(1000)
    before = walkers.rollout(15)
    replay.add_rollout(before)
    replay.forget_unfinished()
    walkers.restart()
    after = walkers.rollout(30)
    replay.add_rollout(after)
    assert stored(replay) == ended_rows([before, after])
    _, other = replay.sample_with(ACHIEVED, 500, "final", dice())
    assert torch.equal(other[:, 1], other[:, 2] - 1)
    with pytest.raises(DataError, match="the rollout is of 2 environments, unfinished episodes of 3"):
        replay.add_rollout(Walkers(2).rollout(4))
    replay.forget_unfinished()
    replay.add_rollout(Walkers(2).rollout(4))


@pytest.mark.parametrize("rollouts", [0, 3, 40])
def test_a_restored_replay_goes_on_as_the_old_one(rollouts: int) -> None:
    walkers, old, new = Walkers(2), EpisodeReplay(50), EpisodeReplay(50)
    for _ in range(rollouts):
        old.add_rollout(walkers.rollout(6))
    new.add_rollout(Walkers(1, seed=5).rollout(5))  # forgotten
    file = io.BytesIO()
    torch.save(old.state_dict(), file)
    file.seek(0)
    new.load_state_dict(torch.load(file, weights_only=True))
    old.forget_unfinished()
    walkers.restart()
    more = walkers.rollout(20)
    for replay in (old, new):
        replay.add_rollout(more)
    assert stored(old) == stored(new)
    for strategy in STRATEGIES:
        drawn = [replay.sample_with(ACHIEVED, 100, strategy, dice()) for replay in (old, new)]
        assert (drawn[0][0] == drawn[1][0]).all()
        assert torch.equal(drawn[0][1], drawn[1][1])


def test_rows_that_cannot_be_used_are_refused() -> None:
    replay, rollout = EpisodeReplay(50), Walkers(2).rollout(30)
    with pytest.raises(DataError, match="empty"):
        replay.sample_with(ACHIEVED, 1, "final", dice())
    with pytest.raises(DataError, match=r"batch size \[60\]; expected \[T, N\]"):
        replay.add_rollout(rollout.reshape(-1))
    replay.add_rollout(rollout)
    with pytest.raises(DataError, match=r"no 'next_observation.goal' in the replay buffer; it holds next_obs"):
        replay.sample_with(("next_observation", "goal"), 1, "final", dice())
    unsure: Any = "futur"
    with pytest.raises(DataError, match="Did you mean 'future'"):
        replay.sample_with(ACHIEVED, 1, unsure, dice())
    endless = rollout.clone()
    for key in ("terminated", "truncated"):
        endless[key][:] = False
    with pytest.raises(DataError, match=r"unfinished episodes.*raise replay_size, or end episodes"):
        replay.add_rollout(endless)
    plain = {**replay.state_dict()}
    plain["rows"] = {key: value for key, value in plain["rows"].items() if key != "place_in_episode"}
    with pytest.raises(DataError, match="has no episodes: it was filled for another reward model"):
        replay.load_state_dict(plain)


def test_an_episode_that_never_ends_is_cut_where_it_is_too_long() -> None:
    def rollout(start: int) -> Batch:
        step = torch.arange(start, start + 4)[:, None].expand(4, 2).clone()
        ended = (step == 5) & (torch.arange(2) == 1)  # only in the second environment
        return TensorDict({"step": step, "terminated": ended, "truncated": torch.zeros_like(ended)}, batch_size=[4, 2])

    episodes = WholeEpisodes(longest=7)
    assert episodes.add(rollout(0)) is None
    cut = episodes.add(rollout(4))
    assert cut is not None
    assert cut["step"].tolist() == [*range(8), *range(6)]
    assert cut["truncated"].nonzero().flatten().tolist() == [7]
    assert cut["terminated"].nonzero().flatten().tolist() == [13]
    assert len(episodes) == 2  # of the second environment
    assert WholeEpisodes().add(rollout(0)) is None
    for start in range(8, 400, 4):
        episodes.add(rollout(start))
        assert len(episodes) < 2 * (7 + 4)
