"""Policy and reward model trained together in one call, with DI-engine's names of the arguments."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, TypeGuard, Unpack

from rich.console import Console

from rewardlab.compat import show_notes
from rewardlab.compat.ding_configs import fits_both_pipelines, translate_pair
from rewardlab.compat.ding_models import accepted_keys
from rewardlab.config import ExperimentConfig, config_from_mapping, load_config, to_overrides
from rewardlab.errors import ConfigError
from rewardlab.pipelines import train_policy

BUDGET = 10_000_000

# (main_config, create_config) of DI-engine, the name or path of a config here, a mapping in today's keys, or a config.
Pair = tuple[Mapping[str, Any], Mapping[str, Any]]
InputConfig = Pair | list[Mapping[str, Any]] | str | Path | Mapping[str, Any] | ExperimentConfig


class Arguments(TypedDict, total=False):
    """What both pipelines take beside a config and a seed, see `serial_config`."""

    max_env_step: int
    max_train_iter: int
    cooptrain_reward: bool
    pretrain_reward: bool
    log_path: str | Path | None


def serial_pipeline_reward_model_onpolicy(
    input_cfg: InputConfig,
    seed: int = 0,
    *,
    expert_data: Any = None,
    console: Console | None = None,
    **arguments: Unpack[Arguments],
) -> Path:
    """Train a policy on policy (ppo) on the reward of a model; returns the last checkpoint.

    The other arguments are those of `serial_config`.
    """
    cfg = serial_config(input_cfg, on_policy=True, seed=seed, **arguments)
    return train_policy.run(cfg, console=console, expert_data=expert_data)


def serial_pipeline_reward_model_offpolicy(
    input_cfg: InputConfig,
    seed: int = 0,
    *,
    expert_data: Any = None,
    console: Console | None = None,
    **arguments: Unpack[Arguments],
) -> Path:
    """Train a policy off policy (dqn, sac) on the reward of a model; the arguments are those of `..._onpolicy`.

    A pair of DI-engine whose policy is ppo_offpolicy is trained on policy, and a note says so.
    """
    cfg = serial_config(input_cfg, on_policy=False, seed=seed, **arguments)
    return train_policy.run(cfg, console=console, expert_data=expert_data)


def serial_config(
    input_cfg: InputConfig,
    *,
    on_policy: bool,
    seed: int = 0,
    max_env_step: int = BUDGET,
    max_train_iter: int = BUDGET,
    cooptrain_reward: bool = True,
    pretrain_reward: bool = False,
    log_path: str | Path | None = None,
) -> ExperimentConfig:
    """The config that a call of the pipelines trains by.

    `cooptrain_reward` goes on training the reward model on what the policy collects, `pretrain_reward` trains it on its
    expert data before. Of two limits, the call's and the config's, the smaller one holds; the other arguments overrule
    the config.
    """
    values = {
        "seed": seed,
        "reward.cotrain": cooptrain_reward,
        "reward.pretrain": pretrain_reward,
        "reward.use_reward_model": True,
        "runner.task": "train_policy",
        "runner.logger.log_path": log_path,
    }
    cfg = _load(input_cfg, to_overrides(values))
    if not (_is_pair(input_cfg) and fits_both_pipelines(input_cfg[1])):
        _check_algorithm(cfg, on_policy)
    env_steps = _limit("max_env_step", max_env_step, cfg.runner.max_env_steps)
    updates = _limit("max_train_iter", max_train_iter, cfg.runner.max_steps)
    epochs = cfg.runner.max_epochs
    if _is_pair(input_cfg):  # which has no epochs: the budget alone ends it
        epochs = math.ceil(env_steps / (cfg.algorithm.rollout_steps * cfg.env.train.num_envs))
    runner = dataclasses.replace(cfg.runner, max_env_steps=env_steps, max_steps=updates, max_epochs=epochs)
    return dataclasses.replace(cfg, runner=runner)


def _load(input_cfg: InputConfig, overrides: list[str]) -> ExperimentConfig:
    if _is_pair(input_cfg):
        translated = translate_pair(*input_cfg, accepted_keys)
        show_notes(translated.notes, stacklevel=5)
        return config_from_mapping(translated.mapping, overrides)
    if isinstance(input_cfg, ExperimentConfig):
        return config_from_mapping(dataclasses.asdict(input_cfg), overrides)
    if isinstance(input_cfg, Mapping):
        return config_from_mapping(input_cfg, overrides)
    if isinstance(input_cfg, (str, Path)):
        if str(input_cfg).endswith(".py"):
            raise ConfigError(f"{input_cfg}: import main_config and create_config from this file and give the pair")
        return load_config(str(input_cfg), overrides)
    raise ConfigError(
        f"input_cfg: found {type(input_cfg).__name__}, expected the pair (main_config, create_config), the name or the "
        "path of a config, a mapping or an ExperimentConfig"
    )


def _is_pair(input_cfg: object) -> TypeGuard[Pair]:
    return (
        isinstance(input_cfg, (tuple, list))
        and len(input_cfg) == 2
        and all(isinstance(part, Mapping) for part in input_cfg)
    )


def _check_algorithm(cfg: ExperimentConfig, on_policy: bool) -> None:
    if (cfg.algorithm.off_policy is None) == on_policy:
        return
    kind, expected = ("off", "ppo") if on_policy else ("on", "dqn or sac")
    raise ConfigError(
        f"algorithm.name: found {cfg.algorithm.name}, which learns {kind} policy, expected {expected}; for "
        f"{cfg.algorithm.name} call serial_pipeline_reward_model_{kind}policy"
    )


def _limit(name: str, asked: int, configured: int | None) -> int:
    if type(asked) is not int or asked < 1:
        raise ConfigError(f"{name}: found {asked!r}, expected a positive whole number")
    return asked if configured is None else min(asked, configured)
