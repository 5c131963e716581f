"""Classes in the form of RLinf's documentation, on today's mechanism: workers, rollouts, data, networks, runs."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from tensordict import TensorDict
from torch import Tensor, nn
from torch.utils.data import Dataset

from rewardlab.cli.run import run_config
from rewardlab.config import ExperimentConfig, config_from_mapping, load_config
from rewardlab.config.schema import RewardConfig
from rewardlab.data import read_episodes
from rewardlab.data.frames import tabulate
from rewardlab.data.stored_frames import StoredFrames
from rewardlab.errors import ConfigError, DataError
from rewardlab.keys import DEFAULT_CAMERA
from rewardlab.models.classifiers import ImageClassifier, SpatialHead
from rewardlab.models.image_preprocessor import ImagePreprocessor, to_unit_floats
from rewardlab.models.resnet import Norm, ResNet
from rewardlab.rewards import create_reward_model
from rewardlab.rewards.loading import model_class, named_models
from rewardlab.rewards.manager import ESTIMATE, RewardManager, compute_reward, place_estimates
from rewardlab.rewards.zoo.transitions import read_images
from rewardlab.types import Batch
from rewardlab.workers.reward import RewardWorker

AnyConfig = ExperimentConfig | RewardConfig | Mapping[str, Any] | str


def _read_config(cfg: Any) -> ExperimentConfig:
    if isinstance(cfg, ExperimentConfig):
        return cfg
    if isinstance(cfg, RewardConfig):
        return ExperimentConfig(reward=cfg)
    return load_config(cfg) if isinstance(cfg, str) else config_from_mapping(cfg)


@dataclasses.dataclass(kw_only=True)
class EmbodiedRolloutResult:
    """A rollout, one item per step. Any object with the same attributes is read as well.

    `transitions` are pairs (obs, next_obs), or dictionaries with these keys; without them, `forward_inputs` are the
    observations. Rewards and dones are [N], or [N, chunk] of the actions of one step; dones may begin with those of the
    reset.
    """

    prev_logprobs: list[Tensor] = dataclasses.field(default_factory=list)
    prev_values: list[Tensor] = dataclasses.field(default_factory=list)
    dones: list[Tensor] = dataclasses.field(default_factory=list)
    rewards: list[Tensor] = dataclasses.field(default_factory=list)
    transitions: list[Any] = dataclasses.field(default_factory=list)
    forward_inputs: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    env_rewards: list[Tensor] = dataclasses.field(default_factory=list)  # the environment's, where `rewards` are others


def _is_rollout(data: Any) -> bool:
    return hasattr(data, "transitions") and hasattr(data, "forward_inputs")


def _observations(rollout: Any) -> list[Any]:
    """The observation that followed each action."""
    if rollout.transitions:
        return [step["next_obs"] if isinstance(step, Mapping) else step[1] for step in rollout.transitions]
    if not rollout.forward_inputs:
        raise DataError("the rollout has neither transitions nor forward_inputs, so that there is nothing to score")
    return list(rollout.forward_inputs)


def _to_batch(rollout: Any, steps: int) -> Batch:
    """The rewards and ends of a rollout [T, N] as columns; an end counts as truncation."""
    given = getattr(rollout, "env_rewards", None) or rollout.rewards
    if len(given) != steps or len(rollout.dones) not in (steps, steps + 1):
        raise DataError(
            f"the rollout has {steps} observations, {len(given)} rewards and {len(rollout.dones)} dones; expected one "
            "of each per step (and one more of dones if they begin with the reset)"
        )
    reward = torch.stack([_per_chunk(step).float().sum(1) for step in given])
    truncated = torch.stack([_per_chunk(step).bool().any(1) for step in rollout.dones[-steps:]])
    columns = {"env_reward": reward, "terminated": torch.zeros_like(truncated), "truncated": truncated}
    return TensorDict(columns, batch_size=reward.shape)


def _per_chunk(values: Any) -> Tensor:
    """Numbers [N] or [N, chunk] as [N, chunk]."""
    tensor = torch.as_tensor(values)
    return tensor.reshape(len(tensor), -1)


def compute_rollout_rewards(manager: RewardManager, rollout: Any) -> Tensor:
    """Return the reward [T, N] of each step, combined with the environment's as the config of the manager says."""
    observations = _observations(rollout)
    batch, images = _to_batch(rollout, len(observations)), read_images(observations)
    for term in manager.terms:
        scored = term.scored_steps(batch["truncated"])
        model: Any = manager.models[term.name]
        frames = {camera: array[scored] for camera, array in model.network.preprocess.select(images).items()}
        estimates = manager.score(term.name, {"images": frames}) if scored.any() else torch.zeros(0)
        batch[ESTIMATE, term.name] = place_estimates(estimates, scored)
    return compute_reward(manager.rule, batch)


class EmbodiedRewardWorker(RewardWorker):
    """A RewardWorker that is built from a whole config, also in older keys, and that reads whole rollouts."""

    def __init__(self, cfg: AnyConfig, device: str | torch.device = "cpu", **options: Any) -> None:
        super().__init__(_read_config(cfg).reward, device, **options)

    def compute_rewards(self, rollout: Any) -> Tensor:
        """Return the weighted reward of each frame of a rollout, or of observations; not combined with others."""
        return super().compute_rewards(_observations(rollout) if _is_rollout(rollout) else rollout)

    def _compute_rewards_with_model(self, rollout: Any) -> Tensor:
        return self.compute_rewards(rollout)

    def _extract_images_from_obs(self, obs: Any) -> Tensor:
        """Return the images [B, 3, H, W] in [0, 1] of the model's first camera."""
        model: Any = self.manager.model
        return to_unit_floats(model.first_camera(obs), model.image_keys[0])


class EmbodiedRunner:
    """Runs a config: `init_workers` loads its reward model, `run` does what the config says.

    `run` launches workers of its own, so that none is given here but the reward worker, whose config is then that of
    the run.
    """

    def __init__(
        self,
        cfg: AnyConfig,
        *,
        reward: RewardWorker | None = None,
        console: Console | None = None,
        **workers: Any,
    ) -> None:
        given = [name for name, worker in workers.items() if worker is not None]
        if given:
            raise ConfigError(
                f"EmbodiedRunner: found {', '.join(given)}; run() launches its own workers, as cluster.workers and "
                "cluster.component_placement of the config say: leave them out"
            )
        self.cfg = _read_config(cfg)
        if reward is not None:
            self.cfg = dataclasses.replace(self.cfg, reward=reward.config)
        self.reward = reward
        self.console = console

    def init_workers(self) -> None:
        """Load the success classifier of a policy run, if it has one, so that mistakes are found now."""
        models = named_models(self.cfg.reward) if self.cfg.reward.use_reward_model else {}
        classifiers = [name for name, config in models.items() if model_class(config).looks_at == "frames"]
        if self.reward is None and classifiers:
            self.reward = EmbodiedRewardWorker(self.cfg, names=classifiers)
        if self.reward is not None:
            self.reward.init_worker()

    def run(self) -> Path:
        """Do what `runner.task` says and return the last checkpoint, or the directory of the data."""
        return run_config(self.cfg, self.console)

    def update_rewards(self, rollout: Any) -> EmbodiedRolloutResult:
        """Return a copy of a rollout with the reward that the learner maximises; the environment's is kept."""
        if self.reward is None:
            raise ConfigError(
                "update_rewards: there is no success classifier; set reward.use_reward_model and "
                "reward.model.checkpoint_path, and call init_workers first"
            )
        steps = len(_observations(rollout))
        fields = {field.name: getattr(rollout, field.name, []) for field in dataclasses.fields(EmbodiedRolloutResult)}
        rewards = compute_rollout_rewards(self.reward.manager, rollout)
        kept = fields["env_rewards"] or list(rollout.rewards)
        return EmbodiedRolloutResult(**fields | {"rewards": list(rewards.unbind()), "env_rewards": kept[-steps:]})

    def _apply_reward_model(self, rollout: Any) -> EmbodiedRolloutResult:
        return self.update_rewards(rollout)


class RewardDataset(Dataset[tuple[Tensor, Tensor]]):
    """The frames of positive and negative trajectories: item k is the image [3, H, W] in [0, 1] and its label, 0 or 1.

    `samples` lists them: path of the trajectory, number of the frame, label.
    """

    def __init__(
        self,
        positive_dir: str | Path,
        negative_dir: str | Path,
        image_key: str = DEFAULT_CAMERA,
        image_size: Sequence[int] | None = None,
    ) -> None:
        self.image_key = image_key
        self._table = tabulate([*read_episodes(positive_dir), *read_episodes(negative_dir)])
        self._frames = StoredFrames(self._table, [image_key])
        size = None if image_size is None else (int(image_size[0]), int(image_size[1]), int(image_size[2]))
        self._resize = None if size is None else ImagePreprocessor((image_key,), size, normalize=False)

    @property
    def samples(self) -> list[tuple[Path, int, int]]:
        table = self._table
        paths = [table.episodes[number].path for number in table.episode]
        return list(zip(paths, table.time.tolist(), table.label.astype(int).tolist(), strict=True))

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        batch = self._frames[np.array([index % len(self)])]
        image = batch.images[self.image_key]
        pixels = to_unit_floats(image, self.image_key) if self._resize is None else self._resize(image)[:, 0]
        return pixels[0], batch.label[0]


class ResNet10(ResNet):
    """A ResNet with one block per stage."""

    def __init__(self, *, width: int = 64, norm: Norm = "batch") -> None:
        super().__init__("resnet10", width=width, norm=norm)


class _Pooling(nn.Module):
    """The first layer of a head: feature maps [B, cameras, C, H, W] to features [B, F]."""

    def __init__(self, head: SpatialHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, maps: Tensor) -> Tensor:
        return self.head.pool(maps)


class ResNetEncoderWrapper(ImageClassifier):
    """The encoder of a BinaryRewardClassifier: images to features [B, channels * num_spatial_blocks]."""

    def __init__(
        self,
        image_size: Sequence[int] = (3, 64, 64),
        num_spatial_blocks: int = 8,
        pretrained_encoder_path: str | None = None,
        use_pretrain: bool = True,
        freeze_encoder: bool | None = None,
        image_keys: Sequence[str] = (DEFAULT_CAMERA,),
    ) -> None:
        settings = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        network = create_reward_model({"type": "binary_classifier", **settings}).network  # type: ignore[attr-defined]
        super().__init__(network.preprocess, network.encoder, _Pooling(network.head), frozen=network.frozen)
