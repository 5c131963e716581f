"""Reward workers: the same bits wherever they run and however many they are; what they learn survives a death."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

from rewardlab.compat import CompatibilityNote
from rewardlab.config.schema import ClusterConfig, RewardConfig, RewardModelConfig
from rewardlab.rewards import ResNetRewardModel, load_reward_model
from rewardlab.workers import Cluster
from rewardlab.workers import reward as reward_module
from rewardlab.workers.group import Group, LocalWorker
from rewardlab.workers.reward import RewardWorker, launch_reward_workers

STEPS, ENVS, SIDE = 5, 7, 32


def frames(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (*shape, SIDE, SIDE, 3), dtype=torch.uint8, generator=generator)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RewardConfig:
    torch.manual_seed(0)
    model = ResNetRewardModel("resnet10", hidden_dim=8, image_size=(3, SIDE, SIDE), width=8, dropout=0.0)
    model.network.train()(frames(16))  # running statistics as after training
    model.network.eval()
    path = model.save(tmp_path_factory.mktemp("reward") / "model")
    return RewardConfig(
        use_reward_model=True,
        reward_type="continuous",
        success_reward=2.0,
        fail_reward=-1.0,
        model=RewardModelConfig(checkpoint_path=str(path)),
    )


@pytest.fixture
def alone(config: RewardConfig) -> RewardWorker:
    worker = RewardWorker(config)
    worker.init_worker()
    return worker


def alone_worker(worker: RewardWorker) -> LocalWorker:
    made = LocalWorker("alone", lambda: worker)
    made.start().result()
    return made


def scored(workers: Group | list[LocalWorker], images: torch.Tensor) -> torch.Tensor:
    """The estimates of all workers, each of its own part of the frames."""
    pictures = {"base_camera": images}
    futures = [w.submit("score", pictures, part=(k, len(workers)), retry=True) for k, w in enumerate(workers)]
    return torch.cat([future.result().estimates["resnet_reward"] for future in futures])


@pytest.mark.parametrize("form", ["one batch", "list of steps"])
def test_main_images_and_states_are_the_default_camera_and_the_state(alone: RewardWorker, form: str) -> None:
    images, states = frames(STEPS, ENVS), torch.zeros(STEPS, ENVS, 3)
    observations: Any = {"main_images": images, "states": states}
    if form == "list of steps":
        observations = [{"main_images": images[t], "states": states[t]} for t in range(STEPS)]
    expected = alone.compute_batch_rewards({"images": {"base_camera": images}})
    assert torch.equal(alone.compute_batch_rewards(observations), expected)
    assert torch.equal(alone.manager.compute_rewards(observations), expected)


def test_the_documented_methods(config: RewardConfig, alone: RewardWorker, tmp_path: Path) -> None:
    rollout = [{"images": {"base_camera": frames(ENVS, seed=step)}} for step in range(STEPS)]
    rewards = alone.compute_batch_rewards(rollout)
    assert rewards.shape == (STEPS, ENVS)
    assert torch.equal(rewards[3], alone.compute_rewards(rollout[3]))
    probability = load_reward_model(config.models[0].checkpoint_path).probabilities(rollout[3])  # type: ignore[attr-defined]
    torch.testing.assert_close(rewards[3], -1 + 3 * probability)
    saved = load_reward_model(alone.save_checkpoint(tmp_path, step=7))
    assert (tmp_path / "step_000007" / "config.json").is_file()
    assert torch.equal(saved.probabilities(rollout[3]), probability)  # type: ignore[attr-defined]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_frames_have_the_same_scores_however_many_workers_share_them(
    config: RewardConfig, alone: RewardWorker, count: int
) -> None:
    with Cluster(ClusterConfig(workers={"reward": count})) as cluster:
        workers = launch_reward_workers(cluster, config)
        for rows in (0, 1, 11):
            assert torch.equal(scored(workers, frames(rows)), scored([alone_worker(alone)], frames(rows)))


def test_a_worker_that_dies_is_replaced_with_the_weights_it_had(
    config: RewardConfig, alone: RewardWorker, ray_session: None
) -> None:
    images = frames(12, seed=3)
    before = alone.manager.score("resnet_reward", {"images": {"base_camera": images}})
    model = alone.manager.model
    model.collect_data({"images": {"base_camera": images}, "success": torch.arange(12) % 2 == 0})
    model.train()
    alone.manager.versions["resnet_reward"] += 1
    expected = alone.manager.score("resnet_reward", {"images": {"base_camera": images}})
    assert not torch.equal(expected, before)
    with Cluster(ClusterConfig(backend="ray", workers={"reward": 2})) as cluster:
        workers = launch_reward_workers(cluster, config)
        assert torch.equal(scored(workers, images), before)
        workers.setup("load_weights", alone.manager.state_dict())
        assert torch.equal(scored(workers, images), expected)
        os.kill(ray.get(workers[1].actor.pid.remote()), signal.SIGKILL)  # type: ignore[attr-defined]
        with pytest.warns(RuntimeWarning, match=r"RewardGroup\[1\] died during score"):
            assert torch.equal(scored(workers, images), expected)
        found = workers[1].submit("score", {"base_camera": images}).result()
        assert found.versions == {"resnet_reward": 1}


def test_older_names_are_answered_with_todays() -> None:
    with pytest.warns(CompatibilityNote, match=r"ImageRewardWorker is now rewardlab\.workers\.reward\.RewardWorker"):
        assert reward_module.ImageRewardWorker is RewardWorker  # type: ignore[attr-defined]
    with pytest.warns(CompatibilityNote, match=r"EmbodiedRewardWorker is now rewardlab\.workers\.reward\.RewardWorker"):
        assert issubclass(reward_module.EmbodiedRewardWorker, RewardWorker)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'NoWorker'"):
        _ = reward_module.NoWorker  # type: ignore[attr-defined]
