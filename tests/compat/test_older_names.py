"""Every class, function and method of the older documentation is found under its name, and does what it did."""

import dataclasses
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

import rewardlab.compat
from rewardlab.compat import CompatibilityNote, names
from rewardlab.config import config_from_mapping
from rewardlab.errors import ConfigError, DataError
from rewardlab.rewards import ResNetRewardModel

STEPS, ENVS, SIDE = 3, 2, 32

pytestmark = pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")


def frames(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (*shape, SIDE, SIDE, 3), dtype=torch.uint8, generator=generator)


def older(name: str) -> Any:
    return getattr(rewardlab.compat, name)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    model = ResNetRewardModel("resnet10", hidden_dim=8, image_size=(3, SIDE, SIDE), width=8, dropout=0.0)
    return str(model.save(tmp_path_factory.mktemp("reward") / "model"))


def config(checkpoint: str, **reward: Any) -> dict[str, Any]:
    """In older keys."""
    model = {"checkpoint_path": checkpoint, "reward_type": "continuous"}
    return {"reward": {"use_reward_model": True, "reward_model": model, **reward}}


@pytest.fixture
def rollout() -> Any:
    """Steps with chunks of one action; the second environment ends an episode in the second step."""
    images = frames(STEPS + 1, ENVS)
    obs = [{"main_images": images[t], "states": torch.zeros(ENVS, 3)} for t in range(STEPS + 1)]
    dones = [torch.tensor([[False], [t == 2]]) for t in range(STEPS + 1)]  # the first one is the reset's
    rewards = [torch.full((ENVS, 1), float(t)) for t in range(STEPS)]
    return older("EmbodiedRolloutResult")(transitions=list(itertools.pairwise(obs)), dones=dones, rewards=rewards)


@pytest.mark.parametrize("name", names.NAMES)
def test_every_name_is_found_with_todays_in_a_note(name: str) -> None:
    today = names.NAMES[name]["today"]
    module, _, last = today.rpartition(".")
    if last == name:
        found = older(name)
    else:
        with pytest.warns(CompatibilityNote, match=f"^{name} is now {today}$"):
            found = older(name)
    __import__(module)
    if "adapter" in names.NAMES[name]:
        assert found.__module__ == f"rewardlab.compat.{names.NAMES[name]['adapter']}"
        assert found.__doc__
    else:
        assert found is getattr(sys.modules[module], last)


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'EmbodiedRuner'"):
        older("EmbodiedRuner")


def test_embodied_reward_worker(checkpoint: str, rollout: Any) -> None:
    worker = older("EmbodiedRewardWorker")(config(checkpoint))
    worker.init_worker()
    rewards = worker.compute_rewards(rollout)
    assert rewards.shape == (STEPS, ENVS)
    after = torch.stack([step[1]["main_images"] for step in rollout.transitions])
    assert torch.equal(rewards, worker.manager.model.probabilities(after))
    assert torch.equal(worker._compute_rewards_with_model(rollout), rewards)
    assert torch.equal(worker.compute_rewards(rollout.transitions[0][1]), rewards[0])
    inputs = older("EmbodiedRolloutResult")(forward_inputs=[step[1] for step in rollout.transitions])
    assert torch.equal(worker.compute_rewards(inputs), rewards)
    pixels = worker._extract_images_from_obs(rollout.transitions[0][1])
    assert pixels.shape == (ENVS, 3, SIDE, SIDE)
    assert torch.equal(pixels, after[0].permute(0, 3, 1, 2) / 255)
    with pytest.raises(DataError, match="neither transitions nor forward_inputs"):
        worker.compute_rewards(older("EmbodiedRolloutResult")())


def test_reward_worker_and_manager(checkpoint: str, tmp_path: Path) -> None:
    cfg = config_from_mapping(config(checkpoint)).reward
    worker = older("RewardWorker")(cfg)
    worker.init_worker()
    observations = {"main_images": frames(STEPS, ENVS), "states": torch.zeros(STEPS, ENVS, 3)}
    rewards = worker.compute_batch_rewards(observations)
    assert (Path(worker.save_checkpoint(tmp_path, step=3)) / "model.safetensors").is_file()
    manager = older("RewardManager").from_config(cfg).to_device("cpu")
    assert torch.equal(manager.compute_rewards(observations), rewards)


@pytest.mark.parametrize("mode", ["per_step", "terminal"])
@pytest.mark.parametrize("combine", ["replace", "add"])
def test_runner_updates_the_rewards_of_a_rollout(checkpoint: str, rollout: Any, mode: str, combine: str) -> None:
    runner = older("EmbodiedRunner")(config(checkpoint, reward_mode=mode, mode=combine))
    runner.init_workers()
    updated = runner.update_rewards(rollout)
    model = runner.reward.compute_rewards(rollout)
    if mode == "terminal":
        model = torch.where(torch.tensor([[False, False], [False, True], [False, False]]), model, 0.0)
    env = torch.arange(STEPS).float()[:, None].expand(STEPS, ENVS)
    torch.testing.assert_close(torch.stack(updated.rewards), model + env * (combine == "add"))
    assert updated.env_rewards == rollout.rewards
    again = runner._apply_reward_model(updated)  # from the environment's rewards, not from the updated ones
    assert torch.equal(torch.stack(again.rewards), torch.stack(updated.rewards))
    foreign = runner.update_rewards(SimpleNamespace(**dataclasses.asdict(rollout)))
    assert torch.equal(torch.stack(foreign.rewards), torch.stack(updated.rewards))


def test_runner_trains_with_the_worker_it_is_given(checkpoint: str, tmp_path: Path) -> None:
    small = {
        "runner": {"max_epochs": 1, "logger": {"log_path": str(tmp_path)}},
        "env": {"train": {"num_envs": 2, "max_episode_steps": 4, "image_size": [3, SIDE, SIDE]}},
        "algorithm": {"ppo": {"rollout_steps": 4, "update_epochs": 1}},
        "actor": {"global_batch_size": 8, "model": {"hidden_sizes": [8]}},
    }
    worker = older("EmbodiedRewardWorker")(config(checkpoint))
    runner = older("EmbodiedRunner")(
        small, actor=None, rollout=None, env=None, reward=worker, console=Console(quiet=True)
    )
    runner.init_workers()
    assert runner.run() == tmp_path / "checkpoints" / "global_step_1"
    assert '"rollout/model_rewards"' in (tmp_path / "metrics.jsonl").read_text()


def test_runner_mistakes(checkpoint: str, rollout: Any) -> None:
    with pytest.raises(ConfigError, match=r"found actor, env; run\(\) launches its own workers"):
        older("EmbodiedRunner")({}, actor=1, env=2)
    runner = older("EmbodiedRunner")({})
    runner.init_workers()
    with pytest.raises(
        ConfigError, match=r"update_rewards: there is no success classifier; set reward\.use_reward_model"
    ):
        runner.update_rewards(rollout)
    runner = older("EmbodiedRunner")("zoo/cartpole_ppo_rnd")
    runner.init_workers()
    assert runner.reward is None  # its model learns in the run, and is built there
    runner = older("EmbodiedRunner")(config(checkpoint))
    runner.init_workers()
    with pytest.raises(DataError, match="3 observations, 2 rewards and 4 dones"):
        runner.update_rewards(dataclasses.replace(rollout, rewards=rollout.rewards[1:]))
    wrist = [({}, {"images": {"wrist": frames(ENVS)}})] * STEPS
    with pytest.raises(DataError, match="no images of camera 'base_camera'; found: wrist"):
        runner.update_rewards(dataclasses.replace(rollout, transitions=wrist))


def test_reward_dataset(tmp_path: Path, write_toy_episodes: Any) -> None:
    data = write_toy_episodes(tmp_path, "npy", count=2)
    dataset = older("RewardDataset")(data / "positive", data / "negative", image_key="base_camera")
    assert len(dataset) == len(dataset.samples) == 18
    path, time, label = dataset.samples[7]
    assert (path, time, label) == (data / "positive" / "000000.npy", 7, 1)
    image, found = dataset[7]
    assert (image.shape, image.dtype, float(found)) == ((3, SIDE, SIDE), torch.float32, 1.0)
    assert 0 <= float(image.min()) < float(image.max()) <= 1
    assert torch.equal(dataset[-1][0], dataset[17][0])
    with pytest.raises(IndexError):
        dataset[18]
    same = older("RewardDataset")(data / "positive", data / "negative", image_size=[3, SIDE, SIDE])
    assert torch.equal(same[7][0], image)


def test_networks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    backbone = older("ResNet10")()
    assert backbone(torch.zeros(2, 3, 64, 64)).shape == (2, 512, 2, 2)
    torch.save(backbone.state_dict(), tmp_path / "resnet10_pretrained.pt")
    encoder = older("ResNetEncoderWrapper")(
        image_size=[3, 64, 64],
        num_spatial_blocks=2,
        pretrained_encoder_path=str(tmp_path / "resnet10_pretrained.pt"),
        freeze_encoder=True,
    )
    assert torch.equal(encoder.encoder.conv1.weight, backbone.conv1.weight)
    features = encoder({"base_camera": torch.zeros(2, 64, 64, 3, dtype=torch.uint8)})
    assert features.shape == (2, 512 * 2)
    features.sum().backward()
    assert all(parameter.grad is None for parameter in encoder.encoder.parameters())
    assert older("SpatialLearnedEmbeddings")(2, 2, 512, 3)(torch.zeros(1, 512, 2, 2)).shape == (1, 1536)
    assert isinstance(backbone, older("ResNetEncoder"))


def test_the_loop_of_a_reward_model_in_dings_words() -> None:
    block = {
        **{"type": "gail", "input_size": 5, "hidden_size": 8, "batch_size": 8, "update_per_collect": 2},
        **{"obs_shape": 4, "action_shape": 2, "clear_buffer_per_iters": 2, "expert_model_path": "model"},
    }
    with pytest.warns(CompatibilityNote, match=r"reward_model\.expert_model_path ignored"):
        model = older("create_reward_model")(block, "cpu", None)
    assert isinstance(model, older("BaseRewardModel"))
    assert isinstance(model, older("GailRewardModel"))
    generator = torch.Generator().manual_seed(0)
    data = [
        {
            **{key: torch.randn(4, generator=generator) for key in ("obs", "next_obs")},
            **{"action": torch.tensor([number % 2]), "reward": torch.tensor([1.0]), "done": number == 5},
        }
        for number in range(6)
    ]
    model.load_expert_data(data)
    model.collect_data(data)
    model.train()
    model.clear_data(iter=2)
    model.train(data)
    augmented = model.estimate(data)
    assert len(augmented) == 6
    assert all({"obs", "action", "reward", "next_obs", "done"} <= set(item) for item in augmented)
    assert all(float(item["reward"]) == 1.0 for item in data)
    with pytest.raises(ConfigError, match=r"reward_model\.type: found None"):
        older("create_reward_model")({"batch_size": 3})
    with pytest.warns(CompatibilityNote, match=r"not known here are ignored: reward_model\.curiosity"):
        assert older("create_reward_model")({"type": "rnd", "obs_shape": 4, "curiosity": 1}).obs_shape == 4
