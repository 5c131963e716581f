"""A simulator on the toy device: what it observes and what the policy answers stay there."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from policy_runs import history, weights, without_times
from rich.console import Console
from torch import Tensor
from toy_device import ToyTensor, toy_devices

from rewardlab.config import config_from_mapping
from rewardlab.config.schema import EnvConfig
from rewardlab.devices import accelerator
from rewardlab.envs.make import FAMILIES
from rewardlab.envs.tensor_batch import SeenPictures, TensorBatchEnv
from rewardlab.errors import DataError
from rewardlab.pipelines import train_policy

ENVS, WIDTH = 6, 5


class Points:
    """Points that are pushed to the origin; success is to be near it. Pictures show how far they are."""

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.num_envs, self.device = num_envs, device
        self.observation_space = spaces.Box(-np.inf, np.inf, (WIDTH,), np.float32)
        self.action_space = spaces.Box(-1, 1, (WIDTH,), np.float32)
        self.camera_names = ("base_camera",)
        self.draws = 0
        self._random = [np.random.default_rng(0)] * num_envs
        self._place = torch.zeros(num_envs, WIDTH, device=device)

    def reset(self, seeds: list[int] | None, rows: Tensor | None) -> tuple[Tensor, Mapping[str, Any]]:
        if seeds is not None:
            self._random = [np.random.default_rng(seed) for seed in seeds]
        chosen = range(self.num_envs) if rows is None else rows.cpu().tolist()
        for row in chosen:
            self._place[row] = torch.from_numpy(self._random[row].normal(0, 1, WIDTH).astype(np.float32)).to(
                self.device
            )
        return self._place.clone(), self._facts()

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Mapping[str, Any]]:
        self._place = self._place + 0.3 * actions
        return self._place.clone(), -self._place.norm(dim=1), self._facts()

    def draw(self, cameras: Sequence[str], size: tuple[int, int] | None) -> dict[str, Tensor]:
        self.draws += 1
        shade = (50 * self._place.norm(dim=1)).clamp(0, 255).to(torch.uint8)
        return dict.fromkeys(cameras, shade[:, None, None, None].expand(-1, *(size or (8, 8)), 3).clone())

    def close(self) -> None:
        pass

    def _facts(self) -> Mapping[str, Any]:
        return {"success": self._place.norm(dim=1) < 0.5, "is_grasped": self._place[:, 0] > 0}


def make_points(cfg: EnvConfig) -> TensorBatchEnv:
    device = torch.device(accelerator() or "cpu")
    return TensorBatchEnv(Points(cfg.num_envs, device), max_episode_steps=cfg.max_episode_steps or 10)


@pytest.fixture(scope="module", autouse=True)
def family() -> None:
    if "points" not in FAMILIES:
        FAMILIES.register("points")(make_points)


def env(**settings: Any) -> TensorBatchEnv:
    return TensorBatchEnv(Points(ENVS, torch.device("cpu")), max_episode_steps=4, **settings)


def test_the_last_observation_is_that_before_the_reset() -> None:
    points = env()
    points.reset(seed=3)
    for _ in range(3):
        before, _, _, truncated, infos = points.step(torch.zeros(ENVS, WIDTH))
        assert not truncated.any()
        assert "final_obs" not in infos
    after, _, terminated, truncated, infos = points.step(torch.zeros(ENVS, WIDTH))
    assert truncated.all()
    assert not terminated.any()
    assert torch.equal(infos["final_obs"], before)
    assert not torch.equal(after, before)
    assert torch.equal(infos["final_info"]["success"], before.norm(dim=1) < 0.5)
    assert torch.equal(infos["success"], after.norm(dim=1) < 0.5)


def test_success_in_a_row_ends_an_episode_and_actions_are_repeated() -> None:
    points = env(success_hold_steps=2, action_repeat=3)
    start, _ = points.reset(seed=0)
    home = (-start / 0.9).clamp(-1, 1)  # within three repeats, if it is near
    points.step(home)
    _, reward, terminated, _, infos = points.step(np.zeros((ENVS, WIDTH), np.float32))
    near = (start + 0.9 * home).norm(dim=1) < 0.5
    assert near.any()
    assert torch.equal(terminated, near)
    assert torch.allclose(reward, -3 * (start + 0.9 * home).norm(dim=1))
    assert torch.equal(infos["_final_info"], near)


def test_a_failure_that_the_simulator_names_ends_an_episode() -> None:
    points = env()
    simulator: Any = points._simulator
    start, _ = points.reset(seed=0)
    facts = simulator._facts
    simulator._facts = lambda: {**facts(), "fail": simulator._place[:, 0] > 0}
    _, _, terminated, truncated, infos = points.step(torch.zeros(ENVS, WIDTH))
    assert 0 < int(terminated.sum()) < ENVS
    assert torch.equal(terminated, start[:, 0] > 0)
    assert torch.equal(infos["final_info"]["fail"], start[:, 0] > 0)
    assert not truncated.any()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("failing_step", "reward_until_then"), [(1, 1.0), (2, 1.0 + 2.0)])
def test_nothing_counts_after_a_failure_within_a_repeated_action(
    failing_step: int, reward_until_then: float, sparse: bool
) -> None:
    """Half of the points fail in the first or second of three steps, and all succeed in the third."""
    points = env(action_repeat=3, sparse=sparse, success_hold_steps=1)
    simulator: Any = points._simulator
    points.reset(seed=0)
    fails, steps = torch.arange(ENVS) % 2 == 0, 0

    def step(actions: Tensor) -> Any:
        nonlocal steps
        steps += 1
        facts = {"success": torch.full((ENVS,), steps == 3), "fail": fails & (steps == failing_step)}
        simulator._place.fill_(steps)  # the buffer of the observation before
        return simulator._place, torch.full((ENVS,), float(steps)), facts

    simulator.step = step
    _, reward, terminated, truncated, infos = points.step(torch.zeros(ENVS, WIDTH))
    assert terminated.all()
    assert not truncated.any()
    expected = (0.0, 1.0) if sparse else (reward_until_then, 1.0 + 2.0 + 3.0)
    assert torch.equal(reward, torch.where(fails, *map(torch.tensor, expected)))
    assert torch.equal(infos["final_info"]["success"], ~fails)
    assert torch.equal(infos["final_info"]["fail"], fails)
    assert torch.equal(infos["final_obs"][:, 0], torch.where(fails, float(failing_step), 3.0))


def test_last_frames_are_drawn_only_for_those_who_ask() -> None:
    points = env()
    simulator: Any = points._simulator
    points.reset(seed=1)
    for _ in range(4):
        points.step(torch.zeros(ENVS, WIDTH))
    assert simulator.draws == 0
    with pytest.raises(DataError, match="keep_last_frames"):
        points.render_cameras(["base_camera"], (8, 8), final=True)
    points.keep_last_frames("test", {(8, 8): ["base_camera"]})
    for _ in range(3):
        points.step(torch.zeros(ENVS, WIDTH))
    now = points.render_cameras(["base_camera"], (8, 8))["base_camera"]
    points.step(torch.zeros(ENVS, WIDTH))
    last = points.render_cameras(["base_camera"], (8, 8), np.array([2, 4]), final=True)["base_camera"]
    assert np.array_equal(last, now[[2, 4]])
    assert simulator.draws == 2


def test_pictures_in_observations_are_tensors_too() -> None:
    points = env(seen=SeenPictures(("base_camera",), (8, 8), with_state=True), sparse=True, action_repeat=2)
    points.reset(seed=1)
    assert points.single_observation_space["images"]["base_camera"].shape == (8, 8, 3)  # type: ignore[index]
    for _ in range(4):
        before, reward, _, _, infos = points.step(torch.zeros(ENVS, WIDTH))
    assert torch.equal(reward, 1.0 * infos["final_info"]["success"])
    shade = (50 * infos["final_obs"]["state"].norm(dim=1)).clamp(0, 255).to(torch.uint8)
    assert torch.equal(infos["final_obs"]["images"]["base_camera"][:, 0, 0, 0], shade)
    assert torch.equal(before["images"]["base_camera"][:, 0, 0, 0], (50 * before["state"].norm(dim=1)).to(torch.uint8))


CONFIG = {
    "env": {"train": {"id": "points/Reach", "num_envs": ENVS, "max_episode_steps": 7}},
    "runner": {"max_epochs": 3, "save_interval": 3},
    "algorithm": {"ppo": {"rollout_steps": 9}},
    "actor": {"global_batch_size": 18, "model": {"hidden_sizes": [8]}},
}


def run(place: Path, *overrides: str) -> Path:
    cfg = config_from_mapping(CONFIG, [f"runner.logger.log_path={place}", *overrides])
    return train_policy.run(cfg, console=Console(quiet=True))


SAC = ["algorithm.name=sac", "algorithm.sac.learning_starts=60", "algorithm.sac.rollout_steps=9"]


@pytest.mark.usefixtures("without_drawing")
@pytest.mark.parametrize("algorithm", [[], SAC], ids=["ppo", "sac"])
def test_observations_and_actions_stay_on_the_device(
    algorithm: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu = run(tmp_path / "cpu", "cluster.device=cpu", *algorithm)
    copied: list[tuple[int, ...]] = []
    cpu = ToyTensor.cpu

    def watched(self: ToyTensor, *args: Any) -> Tensor:
        copied.append(tuple(self.shape))
        return cpu(self, *args)

    monkeypatch.setattr(ToyTensor, "cpu", watched)
    with toy_devices():
        on_toy = run(tmp_path / "toy", *algorithm)
    assert (ENVS,) in copied  # flags and rewards
    assert (ENVS, WIDTH) not in copied  # observations and actions
    for name, weight in weights(on_cpu).items():
        torch.testing.assert_close(weights(on_toy)[name], weight, rtol=0, atol=0)
    rows = [without_times(history(run.parent.parent)) for run in (on_cpu, on_toy)]
    assert rows[0] == rows[1]
