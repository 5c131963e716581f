"""Reward workers: the same bits wherever they run and however many they are; what they learn survives a death."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

from rewardlab.compat import CompatibilityNote
from rewardlab.config.schema import ClusterConfig, RewardConfig, RewardModelConfig
from rewardlab.errors import DataError
from rewardlab.rewards import ResNetRewardModel, load_reward_model
from rewardlab.workers import Cluster
from rewardlab.workers import reward as reward_module
from rewardlab.workers.reward import RewardGroup, RewardWorker, split_rows

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


@pytest.fixture(scope="module")
def on_ray(config: RewardConfig, ray_session: None) -> Iterator[RewardGroup]:
    class Reachable(RewardWorker):
        def process(self) -> int:
            return os.getpid()

    with Cluster(ClusterConfig(backend="ray", workers={"reward": 2})) as cluster:
        yield RewardGroup(cluster.launch("reward", lambda seat: Reachable(config, seat.device), name=config.group_name))


@pytest.fixture
def alone(config: RewardConfig) -> RewardWorker:
    worker = RewardWorker(config)
    worker.init_worker()
    return worker


def in_process(config: RewardConfig, count: int, *, background: bool = False) -> RewardGroup:
    cluster = Cluster(ClusterConfig(workers={"reward": count}))
    return RewardGroup.launch(cluster, config, background=background)


def test_a_rollout_has_the_same_rewards_wherever_it_is_scored(
    config: RewardConfig, alone: RewardWorker, on_ray: RewardGroup
) -> None:
    rollout = [{"images": {"base_camera": frames(ENVS, seed=step)}} for step in range(STEPS)]
    expected = alone.compute_batch_rewards(rollout)
    assert expected.shape == (STEPS, ENVS)
    assert torch.equal(expected[3], alone.compute_rewards(rollout[3]))
    groups = [in_process(config, 1), in_process(config, 2), in_process(config, 3, background=True), on_ray]
    for group in groups:
        assert torch.equal(group.compute_batch_rewards(rollout).result(), expected)
        group.workers.stop() if group is not on_ray else None


def test_one_scoring_gives_probability_and_reward(alone: RewardWorker, on_ray: RewardGroup) -> None:
    batch = TensorDict({"observation": {"images": {"base_camera": frames(9)}}}, batch_size=[9])
    scores = on_ray.score(batch).result()
    assert torch.equal(scores.estimate, alone.manager.model.probabilities(batch))  # type: ignore[attr-defined]
    assert torch.equal(scores.reward, -1 + 3 * scores.estimate)


def test_parts_are_in_order_nearly_equal_and_never_empty() -> None:
    rows = {"a": torch.arange(7), "b": {"c": list(range(7))}}
    parts = split_rows(rows, 3)
    assert [part["a"].tolist() for part in parts] == [part["b"]["c"] for part in parts] == [[0, 1], [2, 3], [4, 5, 6]]
    assert split_rows([1], 2) == [[1]]
    assert split_rows([], 2) == [[]]
    with pytest.raises(DataError, match=r"one length; found lengths \[2, 3\]"):
        split_rows({"a": [1, 2], "b": [1, 2, 3]}, 2)


def test_what_one_worker_learns_all_have_and_keep(alone: RewardWorker, on_ray: RewardGroup, tmp_path: Path) -> None:
    images = frames(12, seed=3)
    labelled = TensorDict(
        {"observation": {"images": {"base_camera": images}}, "success": torch.arange(12) % 2 == 0}, batch_size=[12]
    )
    before = alone.compute_rewards(images)
    alone.update(labelled, iteration=1)
    expected = alone.compute_rewards(images)
    assert not torch.equal(expected, before)
    on_ray.update(labelled, iteration=1)
    assert torch.equal(on_ray.compute_batch_rewards(images).result(), expected)
    saved = load_reward_model(on_ray.save_checkpoint(tmp_path, step=7))
    assert (tmp_path / "step_000007" / "config.json").is_file()
    assert torch.equal(saved.probabilities(images), alone.score(images).estimate)

    os.kill(on_ray.workers[1].submit("process").result(), signal.SIGKILL)
    with pytest.warns(RuntimeWarning, match=r"RewardGroup\[1\] died during compute_batch_rewards"):
        assert torch.equal(on_ray.compute_batch_rewards(images).result(), expected)


@pytest.mark.parametrize("name", ["ImageRewardWorker", "EmbodiedRewardWorker"])
def test_older_names_are_answered_with_todays(name: str) -> None:
    with pytest.warns(CompatibilityNote, match=f"class {name} is now RewardWorker"):
        assert getattr(reward_module, name) is RewardWorker
    with pytest.raises(AttributeError, match="no attribute 'NoWorker'"):
        _ = reward_module.NoWorker  # type: ignore[attr-defined]
