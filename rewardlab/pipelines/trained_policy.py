"""A trained policy from its checkpoint: to be judged, or to act where episodes are collected."""

from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import VectorEnv
from torch import Tensor, nn

from rewardlab.config import ExperimentConfig, config_from_mapping, load_config
from rewardlab.data.episodes import Array
from rewardlab.devices import CPU, seeded_generator, to_device
from rewardlab.envs.actions import within_bounds
from rewardlab.envs.policies import Policy
from rewardlab.errors import DataError
from rewardlab.models.checkpoint_config import CONFIG
from rewardlab.models.weights import build_to_fit, first_mismatch
from rewardlab.observations import as_observation, to_batch
from rewardlab.rl.make import make_policy_network
from rewardlab.run_directories import CHECKPOINTS, CONFIG_FILE
from rewardlab.run_state import RUN_CONFIG, find_checkpoint, load_facts, load_state


class TrainedPolicy(Policy):
    """Acts as it did in training, exploration included: mistakes are what a success classifier learns from.

    Without `explore` it does its best, as somebody should from whom others learn.
    """

    def __init__(
        self,
        checkpoint: Path,
        env: VectorEnv[Any, Any, Any],
        seed: int,
        *,
        explore: bool = True,
        device: torch.device = CPU,
    ) -> None:
        self._explore, self._device = explore, device
        self._policy: Any = load_policy(checkpoint, run_config(checkpoint), env).to(device)
        self._generator = seeded_generator(seed, self._device)
        self._space = env.single_action_space

    def act(self, observation: Any) -> Array:
        batch = to_device(to_batch(as_observation(observation)), self._device)
        action = self._policy.act(batch, self._generator, explore=self._explore)["action"].cpu().numpy()
        return within_bounds(action, self._space)


def latest_checkpoint(run: Path) -> Path:
    """The checkpoint itself, or the newest of a run, whose directory or report is given."""
    return find_checkpoint(run, of="policy")


def config_file(checkpoint: Path) -> Path:
    """The config of the run that a checkpoint is from."""
    beside = checkpoint.parent.parent / CONFIG_FILE
    is_of_this_run = checkpoint.parent.name == CHECKPOINTS and beside.is_file()
    return beside if is_of_this_run else checkpoint / CONFIG


def run_config(checkpoint: Path) -> ExperimentConfig:
    path = config_file(checkpoint)
    if path.name == CONFIG_FILE:
        return load_config(str(path), check_files=False)
    stored = load_facts(checkpoint).get(RUN_CONFIG)
    if not isinstance(stored, dict):
        beside = checkpoint.parent.parent / CONFIG_FILE
        raise DataError(f"{checkpoint}: no {beside} beside it; expected a checkpoint in the directory of its run")
    return config_from_mapping(stored, check_files=False)


def load_policy(checkpoint: Path, cfg: ExperimentConfig, env: VectorEnv[Any, Any, Any]) -> nn.Module:
    """The policy of a checkpoint, as it would act in `env`."""
    weights = load_state(checkpoint)[0].get("policy")
    if not isinstance(weights, dict) or not all(isinstance(weight, Tensor) for weight in weights.values()):
        raise DataError(f"{checkpoint}: has no weights of a policy; expected the checkpoint of a policy's run")
    spaces = env.single_observation_space, env.single_action_space
    policy = build_to_fit(lambda: make_policy_network(cfg, *spaces), weights, checkpoint)
    try:
        policy.load_state_dict(weights)
    except RuntimeError as error:
        raise DataError(
            f"{checkpoint}: its policy does not fit the environment, whose observations are "
            f"{env.single_observation_space} and actions {env.single_action_space} ({first_mismatch(error)})"
        ) from error
    return policy.eval().requires_grad_(False)
