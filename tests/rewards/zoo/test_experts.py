"""Expert data in every form, and what is wrong with it."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from zoo_toys import as_list, make_rollout, new, spaces_of

from rewardlab.data import Episode, EpisodeWriter, read_episodes
from rewardlab.errors import DataError
from rewardlab.rewards import create_reward_model, expert_trajectories, expert_transitions


def make_episode(seed: int = 0) -> Episode:
    rng = np.random.default_rng(seed)
    columns = {
        "observation.state": rng.normal(size=(6, 2)).astype(np.float32),
        "action": rng.integers(0, 2, 6),
        "reward": np.arange(6, dtype=np.float32),
        "terminated": np.zeros(6, bool),
        "truncated": np.arange(6) == 5,
        "success": np.zeros(6, bool),
    }
    return Episode.from_columns(columns)


def same(one: TensorDict, other: TensorDict) -> bool:
    keys = ("observation", "next_observation", "action", "reward", "terminated", "truncated")
    return all(torch.equal(_plain(one[key]), _plain(other[key])) for key in keys)


def _plain(value: Any) -> torch.Tensor:
    return value["state"] if isinstance(value, TensorDict) else value


def test_every_form_gives_the_same_transitions(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path / "episodes")
    episodes = [make_episode(0), make_episode(1)]
    for episode in episodes:
        writer.write(episode)
    expected = expert_transitions(episodes)
    assert len(expected) == 10
    assert expected["truncated"].nonzero().flatten().tolist() == [4, 9]
    items = as_list(expected)
    for item, truncated in zip(items, expected["truncated"], strict=True):
        item["truncated"] = truncated
    arrays = {key: value.numpy() for key, value in expected.items() if isinstance(value, torch.Tensor)}
    arrays |= {key: expected[key, "state"].numpy() for key in ("observation", "next_observation")}
    plain = [
        {key: np.asarray(value) for key, value in item.items() if key not in ("obs", "next_obs")} for item in items
    ]
    for item, row in zip(plain, items, strict=True):
        item |= {key: row[key]["state"].numpy() for key in ("obs", "next_obs")}
    (tmp_path / "expert.pkl").write_bytes(pickle.dumps(plain))
    forms: list[Any] = [
        read_episodes(tmp_path / "episodes"),
        list(read_episodes(tmp_path / "episodes")),
        str(tmp_path / "episodes"),
        tmp_path / "episodes",
        tmp_path / "expert.pkl",
        expected,
        items,
        arrays,
        [expected[:5], expected[5:]],
        [items[:5], items[5:]],
        lambda: expected,
    ]
    for form in forms:
        assert same(expert_transitions(form), expected), form
        assert [len(trajectory) for trajectory in expert_trajectories(form)] == [5, 5]


def test_a_rollout_is_read_environment_by_environment() -> None:
    rollout = make_rollout(1)
    trajectories = expert_trajectories(rollout)
    assert [len(trajectory) for trajectory in trajectories] == [10] * 12
    assert torch.equal(trajectories[0]["observation", "state"], rollout["observation"][:10, 0])


def test_a_config_names_the_file_and_create_reward_model_reads_it(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path)
    for seed in range(3):
        writer.write(make_episode(seed))
    model: Any = create_reward_model({"type": "pwil", "expert_data_path": str(tmp_path)})
    model.bind(*spaces_of())
    assert len(model.atoms.rows) == 15
    assert int(model.atoms.horizon) == 5


class TestBadExperts:
    @pytest.fixture
    def model(self) -> Any:
        return new("gail").bind(*spaces_of(discrete=False))

    def test_empty(self, tmp_path: Path) -> None:
        for nothing in ([], TensorDict({"observation": torch.zeros(0, 2)}, [0]), lambda: []):
            with pytest.raises(DataError, match="expert data: no transitions in it"):
                expert_transitions(nothing)
        with pytest.raises(DataError, match=f"no episodes in {tmp_path}"):
            expert_transitions(tmp_path)
        with pytest.raises(DataError, match=r"missing\.pkl does not exist"):
            expert_transitions(tmp_path / "missing.pkl")
        (tmp_path / "empty.pkl").write_bytes(pickle.dumps([]))
        with pytest.raises(DataError, match=r"empty\.pkl: no transitions in it"):
            expert_transitions(tmp_path / "empty.pkl")

    def test_hostile_and_broken_files(self, tmp_path: Path) -> None:
        class Attack:
            def __reduce__(self) -> tuple[object, tuple[str]]:
                return os.mkdir, (str(tmp_path / "attacked"),)

        (tmp_path / "hostile.pkl").write_bytes(pickle.dumps([{"obs": Attack(), "action": 0}]))
        with pytest.raises(DataError, match=r"hostile\.pkl was refused"):
            expert_transitions(tmp_path / "hostile.pkl")
        assert not (tmp_path / "attacked").exists()
        (tmp_path / "broken.pkl").write_bytes(pickle.dumps(as_list(make_rollout()[:, 0]))[:100])
        with pytest.raises(DataError, match=r"broken\.pkl is damaged"):
            expert_transitions(tmp_path / "broken.pkl")
        (tmp_path / "other.pkl").write_bytes(pickle.dumps({"weights": [1, 2]}))
        with pytest.raises(DataError, match=r"other\.pkl: no observations; found weights"):
            expert_transitions(tmp_path / "other.pkl")

    def test_nan(self, model: Any) -> None:
        expert = make_rollout(1, discrete=False)
        expert["action"][0, 0, 1] = float("nan")
        with pytest.raises(DataError, match="expert data: 'action' is nan at row 0"):
            model.load_expert_data(expert)

    def test_shapes_kinds_and_ranges(self, model: Any, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"expert data: 'action' is int64 .* continuous actions of shape \[2\]"):
            model.load_expert_data(make_rollout(1))
        wide = make_rollout(1, discrete=False)
        wide["observation"] = torch.zeros(40, 3, 7)
        with pytest.raises(DataError, match=r"expert data: 'observation.state' has shape \[7\] per row"):
            model.load_expert_data(wide)
        large = make_rollout(1, discrete=False)
        large["action"][3, 0, 1] = 7
        with pytest.raises(DataError, match="expert data: 'action' is 7 at row 3, number 1; expected -2 to 2"):
            model.load_expert_data(large)
        third = make_rollout(1)
        third["action"][0, 0] = 2
        with pytest.raises(DataError, match="expert data: 'action' is 0 to 2; expected 0 to 1"):
            new("red").bind(*spaces_of()).load_expert_data(third)
        episode = make_episode()
        del episode.columns["action"]
        EpisodeWriter(tmp_path).write(episode)
        with pytest.raises(DataError, match=f"{tmp_path}: no 'action' in the transitions"):
            model.load_expert_data(tmp_path)

    def test_no_data_at_all(self) -> None:
        for nonsense, found in ((3, "int"), (None, "NoneType"), ([1, 2], "int")):
            with pytest.raises(DataError, match=f"found a {found}"):
                expert_transitions(nonsense)
        with pytest.raises(DataError, match="differs in shape"):
            expert_transitions([{"obs": torch.zeros(2)}, {"obs": torch.zeros(3)}])
        with pytest.raises(DataError, match="item 1 has no 'obs'"):
            expert_transitions([{"obs": torch.zeros(2)}, {"action": 1}])
