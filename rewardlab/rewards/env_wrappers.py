"""Gymnasium wrappers that replace an environment's reward by a learned one, for use with any RL library.

    env = RewardModelWrapper(gymnasium.make("tabletop/PickCube"), "runs/model/checkpoints/best_model")

Observations are not changed. `info["env_reward"]` is the environment's reward and `info["reward_model/prob"]` the
predicted probability of success. The key is `reward_model/estimate` if the model is not a classifier, and
`reward_model/<term>` if there are several models.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium
import numpy as np
import torch
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper
from torch import Tensor

from rewardlab.config import config_from_mapping
from rewardlab.config.schema import RewardConfig
from rewardlab.envs.checked import check_vector_step, read_step
from rewardlab.errors import ConfigError
from rewardlab.observations import to_numpy
from rewardlab.rewards.base import BaseRewardModel
from rewardlab.rewards.manager import RewardManager
from rewardlab.rewards.step_rewards import BatchOfOne, Step, StepRewards, with_batch_axis

RewardSource: TypeAlias = str | Path | BaseRewardModel | RewardManager | RewardConfig


class RewardModelWrapper(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Gives an environment the reward of `model`: a checkpoint, a reward model, a RewardConfig or a RewardManager.

    `settings` are keys of the `reward` block of a config, such as reward_mode="terminal" or combine_mode="add". Many
    environments share one model if it is loaded once: pass `load_reward_model(path)` instead of the path.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], model: RewardSource, *, device: str | torch.device = "cpu", **settings: Any
    ) -> None:
        # Gymnasium records the arguments to build the environment again; it need not copy the weights.
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, model=model, device=device, **settings)
        gymnasium.Wrapper.__init__(self, env)
        self.manager = reward_manager(model, device, settings)
        self._rewards = StepRewards(BatchOfOne(env), self.manager)
        self._name = type(env.unwrapped).__name__ if env.spec is None else env.spec.id
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._rewards.begin(with_batch_axis(obs))
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        found = read_step(self.env.step(action), self._name, f"step {self._steps}", self.observation_space)
        obs, env_reward, terminated, truncated, info = found
        ends = np.array([terminated], bool), np.array([truncated], bool)
        step = Step(to_numpy(action)[None], with_batch_axis(obs), torch.tensor([float(env_reward)]), *ends, {})
        reward, estimates, ended = self._rewards.compute(step)
        info = {**info, "env_reward": float(env_reward)}
        for name, estimate in estimates.items():
            if not estimate[0].isnan():
                info[info_key(self.manager, name)] = float(estimate[0])
        return obs, float(reward[0]), bool(ended[0]), truncated, info


class RewardModelVectorWrapper(VectorWrapper[Any, Any, Any]):
    """Gives a vector environment the reward of `model`, in any autoreset mode; a step is scored as one batch."""

    def __init__(
        self, env: VectorEnv[Any, Any, Any], model: RewardSource, *, device: str | torch.device = "cpu", **settings: Any
    ) -> None:
        super().__init__(env)
        self.manager = reward_manager(model, device, settings)
        self._rewards = StepRewards(env, self.manager)
        self._steps = 0

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask")  # read first: Gymnasium removes it from the dictionary
        obs, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        self._rewards.begin(obs, mask)
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._steps += 1
        found = check_vector_step(self.env.step(actions), self.env, self._steps)
        obs, env_reward, terminated, truncated, infos = found
        ends = to_numpy(terminated).astype(bool), to_numpy(truncated).astype(bool)
        step = Step(to_numpy(actions), obs, torch.as_tensor(env_reward).float().cpu(), *ends, infos)
        reward, estimates, ended = self._rewards.compute(step)
        infos = {**infos, "env_reward": env_reward, "_env_reward": np.ones(self.num_envs, bool)}
        for name, estimate in estimates.items():
            key = info_key(self.manager, name)
            infos[key], infos[f"_{key}"] = estimate.numpy(), ~np.isnan(estimate.numpy())
        learned = reward.to(env_reward.device) if isinstance(env_reward, Tensor) else reward.numpy()
        if (ended != ends[0]).any():
            terminated = ended
        return obs, learned, terminated, truncated, infos


def reward_manager(source: RewardSource, device: str | torch.device, settings: dict[str, Any]) -> RewardManager:
    """Return the RewardManager for `source`; `settings` are checked as in a config file."""
    if isinstance(source, RewardManager):
        if settings:
            raise ConfigError(
                f"found {', '.join(settings)} with a RewardManager, which has its own config: set them there"
            )
        return source
    if isinstance(source, BaseRewardModel):
        return RewardManager(source, config_from_mapping({"reward": settings}).reward)
    if isinstance(source, RewardConfig):
        section = dataclasses.asdict(source)
    else:
        section = {"model": {"checkpoint_path": str(source)}}
    section = {**section, **settings, "use_reward_model": True}
    return RewardManager.from_config(config_from_mapping({"reward": section}).reward, device)


def info_key(manager: RewardManager, name: str) -> str:
    """Return the key of a model's estimate in an info dictionary."""
    if len(manager.models) > 1:
        return f"reward_model/{name}"
    return "reward_model/prob" if manager.models[name].gives_probability else "reward_model/estimate"
