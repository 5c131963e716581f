"""Policy and reward model trained together in one call, as document 004 prints it: `train_policy` with arguments."""

import dataclasses
import inspect
import json
import math
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from rich.console import Console

from rewardlab.compat import CompatibilityNote
from rewardlab.compat_ding import translate_pair
from rewardlab.config import ExperimentConfig, config_from_mapping, load_config, text_override
from rewardlab.errors import ConfigError
from rewardlab.pipelines import train_policy
from rewardlab.rewards.base import REWARD_MODELS
from rewardlab.rewards.loading import takes_whole_config

BUDGET = 10_000_000

# (main_config, create_config) of DI-engine, the name or path of a config here, a mapping in today's keys, or a config.
Pair = tuple[Mapping[str, Any], Mapping[str, Any]]
InputConfig = Pair | list[Mapping[str, Any]] | str | Path | Mapping[str, Any] | ExperimentConfig


def serial_pipeline_reward_model_onpolicy(
    input_cfg: InputConfig,
    seed: int = 0,
    *,
    max_env_step: int = BUDGET,
    max_train_iter: int = BUDGET,
    cooptrain_reward: bool = True,
    pretrain_reward: bool = False,
    expert_data: Any = None,
    log_path: str | Path | None = None,
    console: Console | None = None,
) -> Path:
    """Train a policy on policy (ppo) on the reward of a model; returns the last checkpoint.

    `cooptrain_reward` goes on training the model on what the policy collects, `pretrain_reward` trains it on
    `expert_data` before. Of two limits, the call's and the config's, the smaller one holds; the seed,
    `cooptrain_reward` and `pretrain_reward` overrule the config's.
    """
    cfg = serial_config(
        input_cfg,
        on_policy=True,
        seed=seed,
        max_env_step=max_env_step,
        max_train_iter=max_train_iter,
        cooptrain_reward=cooptrain_reward,
        pretrain_reward=pretrain_reward,
        log_path=log_path,
    )
    return train_policy.run(cfg, console=console, expert_data=expert_data)


def serial_pipeline_reward_model_offpolicy(
    input_cfg: InputConfig,
    seed: int = 0,
    *,
    max_env_step: int = BUDGET,
    max_train_iter: int = BUDGET,
    cooptrain_reward: bool = True,
    pretrain_reward: bool = False,
    expert_data: Any = None,
    log_path: str | Path | None = None,
    console: Console | None = None,
) -> Path:
    """Train a policy off policy (dqn, sac) on the reward of a model; the arguments are those of `..._onpolicy`."""
    cfg = serial_config(
        input_cfg,
        on_policy=False,
        seed=seed,
        max_env_step=max_env_step,
        max_train_iter=max_train_iter,
        cooptrain_reward=cooptrain_reward,
        pretrain_reward=pretrain_reward,
        log_path=log_path,
    )
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
    """The config that a call of the pipelines trains by."""
    overrides = [
        f"seed={json.dumps(seed)}",
        f"reward.cotrain={json.dumps(cooptrain_reward)}",
        f"reward.pretrain={json.dumps(pretrain_reward)}",
        "reward.use_reward_model=true",
        "runner.task=train_policy",
    ]
    if log_path is not None:
        overrides.append(text_override("runner.logger.log_path", str(log_path)))
    cfg = _load(input_cfg, overrides)
    _check_algorithm(cfg, on_policy)
    env_steps = _limit("max_env_step", max_env_step, cfg.runner.max_env_steps)
    runner = dataclasses.replace(
        cfg.runner,
        max_env_steps=env_steps,
        max_steps=_limit("max_train_iter", max_train_iter, cfg.runner.max_steps),
    )
    if _is_pair(input_cfg):  # which knows no epochs: the budget alone ends it
        runner = dataclasses.replace(runner, max_epochs=_iterations(cfg, env_steps))
    return dataclasses.replace(cfg, runner=runner)


def _load(input_cfg: InputConfig, overrides: list[str]) -> ExperimentConfig:
    if _is_pair(input_cfg):
        translated = translate_pair(*input_cfg, _arguments_of)
        for note in translated.notes:
            warnings.warn(note, CompatibilityNote, stacklevel=4)
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


def _arguments_of(model_type: str) -> Collection[str] | None:
    """The keys that a reward model takes; None for a class that takes its whole config."""
    cls = REWARD_MODELS.find(model_type)
    return None if takes_whole_config(cls) else list(inspect.signature(cls).parameters)


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


def _iterations(cfg: ExperimentConfig, env_steps: int) -> int:
    return math.ceil(env_steps / (cfg.algorithm.rollout_steps * cfg.env.train.num_envs))
