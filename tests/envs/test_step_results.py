"""The success of the frame that followed an action, where an environment resets in the same step."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from rewardlab.config.schema import EnvConfig
from rewardlab.envs import make_vec_env
from rewardlab.envs.step_results import following_success, known_success, merge_infos, success_of
from rewardlab.envs.wrappers import DataCollectorWrapper
from rewardlab.errors import DataError
from rewardlab.observations import final_rows
from rewardlab.rl.evaluation import Evaluation
from rewardlab.workers.env import EnvWorker


@pytest.mark.parametrize("key", ["success", "is_success", "succeed"])
def test_success_goes_with_the_frame(key: str) -> None:
    ended = np.array([False, True, True, False])
    beside = {key: np.array([True, True, False, True]), f"_{key}": np.array([True, True, True, False])}
    assert success_of(beside, 4).tolist() == [True, True, False, False]
    assert following_success(beside, ended).tolist() == [True, True, False, False]
    last = {key: np.array([False, False, True, True]), f"_{key}": ended}
    infos = {**beside, "final_obs": np.full(4, None, object), "final_info": last}
    assert following_success(infos, ended).tolist() == [True, False, True, False]
    del infos["final_info"]
    with pytest.raises(DataError, match="gives no infos\\['final_info'\\]"):
        following_success(infos, ended)


def test_merged_infos_keep_what_is_known_of_each_row() -> None:
    infos = {"success": np.array([True, True]), "parts": {"steps": np.array([3, 4])}, "seconds": 0.5}
    others = {"parts": {"steps": np.array([0, 0])}, "new": np.array([1, 0]), "_new": np.array([True, False])}
    merged = merge_infos(infos, others, np.array([True, False]))
    assert success_of(merged, 2).tolist() == [False, True]
    assert known_success(merged, 2).tolist() == [False, True]
    assert merged["parts"]["steps"].tolist() == [0, 4]
    assert (merged["new"].tolist(), merged["_new"].tolist()) == ([1, 0], [True, False])
    assert merged["seconds"] == 0.5


ODD = [float("nan"), float("inf"), "yes", None, [1, 2], {}]


class OddSuccess(gymnasium.Env[Any, Any]):
    """Says `value` of its third step, and nothing strange before it; episodes last four steps."""

    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)

    def __init__(self, value: Any = False) -> None:
        self.value = value

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return np.zeros(2, np.float32), {"success": False}

    def step(self, action: Any) -> Any:
        self.time += 1
        info = {"success": self.value if self.time == 3 else False}
        return np.zeros(2, np.float32), 0.0, False, self.time == 4, info


gymnasium.register("OddSuccess-v0", OddSuccess)


@pytest.mark.parametrize("value", ODD, ids=str)
def test_a_success_that_is_neither_a_boolean_nor_a_number_is_an_error(value: Any, tmp_path: Path) -> None:
    cfg = EnvConfig(id="OddSuccess-v0", num_envs=2, cameras=(), options={"value": value})
    words = r"'OddSuccess-v0', env(ironment)? 0, step 3.*: info\['success'\] .*expected"
    worker = EnvWorker(cfg, seed=0)
    collector = DataCollectorWrapper(make_vec_env(cfg), tmp_path, cameras=(), task=cfg.id)
    for begin, step in ((lambda: worker.begin(0), worker.step), (collector.reset, collector.step)):
        begin()
        for _ in range(2):
            step(np.zeros(2, np.int64))
        with pytest.raises(DataError, match=words):
            step(np.zeros(2, np.int64))
    with pytest.raises(DataError, match=words):
        Evaluation(cfg, seed=0).run(AlwaysZero())


class AlwaysZero(torch.nn.Module):
    def act(self, observation: Any, *_: Any, **__: Any) -> dict[str, torch.Tensor]:
        return {"action": torch.zeros(len(observation), dtype=torch.int64)}


@pytest.mark.parametrize(
    ("value", "success"), [(1, True), (0.5, True), (0.49, False), (2.0, True), (-1, False), (np.bool_(True), True)]
)
def test_numbers_from_a_half_on_are_a_success(value: Any, success: bool) -> None:
    env = make_vec_env("OddSuccess-v0", num_envs=2, cameras=(), options={"value": value})
    env.reset()
    env.step(np.zeros(2, np.int64))
    env.step(np.zeros(2, np.int64))
    infos = env.step(np.zeros(2, np.int64))[-1]
    assert success_of(infos, 2).tolist() == [success] * 2
    assert success_of({"success": torch.full((2, 1), float(value))}, 2).tolist() == [success] * 2


def test_a_success_for_another_number_of_environments_is_an_error() -> None:
    with pytest.raises(DataError, match=r"info\['success'\] has shape \[3\]; expected one value for each of the 2"):
        success_of({"success": np.ones(3, bool)}, 2)


def test_rows_of_an_array_of_observations_and_nones() -> None:
    final_obs = np.full(3, None, object)
    final_obs[0] = {"state": np.zeros(2), "images": {"base_camera": np.ones((4, 4, 3), np.uint8)}}
    final_obs[2] = {"state": np.ones(2), "images": {"base_camera": np.zeros((4, 4, 3), np.uint8)}}
    rows = final_rows(final_obs, np.array([2, 0]))
    assert rows["state"].tolist() == [[1, 1], [0, 0]]
    assert rows["images"]["base_camera"][:, 0, 0, 0].tolist() == [0, 1]
