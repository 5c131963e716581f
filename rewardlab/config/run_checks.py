"""What must hold before a configuration is run, beyond each key being valid: files exist, and no key misleads."""

import json
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import NoneType
from typing import Any

from rewardlab.compat.names import todays_checkpoint
from rewardlab.config.robots import attach_robots, is_robot
from rewardlab.config.schema import ExperimentConfig, RewardModelConfig
from rewardlab.errors import ConfigError
from rewardlab.input_files import nearest_path
from rewardlab.registry import registered_names, unknown_name

_REWARDS = Path(__file__).parents[1] / "rewards"


def check_run(cfg: ExperimentConfig, given: Mapping[str, Any]) -> None:
    """Raise if a run of `cfg` would fail or mislead; `given` are the keys that the user chose."""
    _check_model_types(cfg)
    attach_robots(cfg)  # raises if a run that acts is configured for robots that it would not use
    _check_reward_model_is_used(cfg, given)
    _check_node_groups(cfg)
    for problem in _keys_without_effect(cfg):
        raise ConfigError(problem)
    _check_wandb(cfg)
    if cfg.runner.task == "train_reward" and cfg.data.data_path is None:
        raise ConfigError("data.data_path: found null, expected the directory of the episodes to train on")
    if cfg.runner.best_model_file is not None and Path(cfg.runner.best_model_file).suffix not in (".pt", ".pth"):
        raise ConfigError(f"runner.best_model_file: found {cfg.runner.best_model_file}, expected a file ending in .pt")
    missing = [
        f"{key}: there is no file or directory {path}{nearest_path(path)}"
        for key, path in _files(cfg)
        if not Path(path).exists()
    ]
    if missing:
        raise ConfigError("\n".join(missing))


def _check_model_types(cfg: ExperimentConfig) -> None:
    """Raise for a reward model that nobody has registered, before importing those that are: that takes seconds."""
    if "rewardlab.rewards.base" in sys.modules:  # there may be more, registered in this process; the registry answers
        return
    used = cfg.reward.use_reward_model or cfg.runner.task == "train_reward"
    for model_type in (model.model_type for model in cfg.reward.models if used):
        if model_type is None or ":" in model_type:
            continue
        known = registered_names(_REWARDS, "register_reward_model")
        if model_type not in known:
            raise ConfigError(f"reward.model.model_type: {unknown_name('reward model', model_type, known)}")


def _check_reward_model_is_used(cfg: ExperimentConfig, given: Mapping[str, Any]) -> None:
    """A reward model with the switch off is a choice; one whose switch was never mentioned is a mistake."""
    reward = cfg.reward
    if cfg.runner.task != "train_policy" or "use_reward_model" in given.get("reward", {}):
        return
    wanted = {
        "reward.model.checkpoint_path": any(model.checkpoint_path is not None for model in reward.models),
        "reward.cotrain": reward.cotrain,
        "reward.pretrain": reward.pretrain,
    }
    for key in (key for key, found in wanted.items() if found):
        raise ConfigError(
            f"reward.use_reward_model: not given, but {key} is; set it to true for the learned reward, or to false for "
            "the environment's own"
        )


def _check_wandb(cfg: ExperimentConfig) -> None:
    project = cfg.runner.logger.wandb_project
    if project is None:
        return
    if cfg.runner.task == "collect":
        raise ConfigError(
            f"runner.logger.wandb_project: found {project}, but a collection writes metrics.jsonl only; set it to null"
        )
    if find_spec("wandb") is None:
        raise ConfigError(
            f"runner.logger.wandb_project: found {project}, but Weights & Biases is not installed: pip install "
            "'rewardlab[wandb]', or set it to null"
        )


def _check_node_groups(cfg: ExperimentConfig) -> None:
    """Every group has a name of its own that a placement uses; a robot's is refused elsewhere."""
    used = {place.rpartition("-")[0] for place in cfg.cluster.component_placement.values()}
    labels = [group.label for group in cfg.cluster.node_groups]
    for index, group in enumerate(cfg.cluster.node_groups):
        label, problem = group.label, None
        if group.hardware is not None:
            continue
        if label is None or label.isdecimal():
            problem = "expected a name that is not a number"
        elif labels.count(label) > 1:
            problem = "which several groups have; expected a name for each"
        elif label not in used:
            problem = "which no component uses; expected one of cluster.component_placement"
        if problem is not None:
            raise ConfigError(f"cluster.node_groups.{index}.label: found {json.dumps(label)}, {problem}")


def _keys_without_effect(cfg: ExperimentConfig) -> Iterator[str]:
    """Keys whose value says that something happens which does not."""
    if cfg.runner.task == "train_reward" and cfg.actor.precision != "fp32":
        yield (
            f"actor.precision: found {cfg.actor.precision}, which is for policies; set reward.model.precision for a "
            "classifier"
        )
    if (file := cfg.runner.best_model_file) is not None and cfg.runner.task != "train_reward":
        yield f"runner.best_model_file: found {file}, but runner.task {cfg.runner.task} trains no classifier; remove it"
    if cfg.runner.page.port is not None and cfg.runner.task == "train_reward":
        yield f"runner.page.port: found {cfg.runner.page.port}, but only runs that act have a page; set it to null"
    if cfg.runner.page.port is not None and cfg.cluster.backend == "ray" and is_robot(cfg.env.train):
        yield (
            f"runner.page.port: found {cfg.runner.page.port}, but with cluster.backend=ray another process moves the "
            "robot, and the page could neither show nor stop it; set runner.page.port=null, or cluster.backend=local"
        )
    yield from _recording_without_effect(cfg)
    if cfg.runner.task != "train_policy" and cfg.reward.backend != "torch":
        yield f"reward.backend: found {cfg.reward.backend}, which is for policies on a learned reward; remove the key"
    if cfg.runner.task != "train_policy":
        return
    workers, reward, name = cfg.cluster.workers, cfg.reward, cfg.algorithm.name
    if cfg.algorithm.asynchronous.enabled and cfg.algorithm.off_policy is None:
        yield (
            f"algorithm.asynchronous.enabled: {name} learns only from what its newest policy has done; set "
            "algorithm.name to sac or dqn"
        )
    if cfg.algorithm.asynchronous.enabled and any(reward.cotrains(model) for model in reward.models):
        yield (
            "algorithm.asynchronous.enabled: found true, but a reward model of this run is trained with the policy "
            "(reward.cotrain); set one of the two to false"
        )
    if cfg.algorithm.sac.demo_path is not None and name != "sac":
        yield f"algorithm.sac.demo_path: {name} does not learn from demonstrations; set algorithm.name to sac"
    if reward.use_reward_model and reward.env_reward_weight != 0 and reward.combine_mode != "weighted":
        yield (
            f"reward.env_reward_weight: found {reward.env_reward_weight}, which combine_mode {reward.combine_mode} "
            "does not use; set reward.combine_mode to weighted"
        )
    if workers.get("actor", 1) > 1:
        yield f"cluster.workers.actor: found {workers['actor']}, but a policy is updated by one worker"
    if "rollout" in workers and workers["rollout"] != workers.get("env", 1):
        yield (
            f"cluster.workers.rollout: found {workers['rollout']}, but there is one for each of the "
            f"{workers.get('env', 1)} env workers; set cluster.workers.env"
        )


def _recording_without_effect(cfg: ExperimentConfig) -> Iterator[str]:
    """What a recording (one file of transitions) cannot do."""
    plan = cfg.data.collection
    if plan.format != "transitions":
        return
    if cfg.runner.task == "train_policy" and plan.enabled:
        yield (
            "data.collection.format: found transitions, which cannot tell what a resumed run has written already; "
            "expected safetensors, pickle or npy while a policy trains"
        )
    if plan.frames != "all":
        yield f"data.collection.frames: found {plan.frames}, but transitions have a picture of every frame; remove it"
    for key in ("success_dir", "failure_dir"):
        if getattr(plan, key) is not None:
            yield f"data.collection.{key}: found {getattr(plan, key)}, but transitions go to one file; remove the key"


def _files(cfg: ExperimentConfig) -> Iterator[tuple[str, str]]:
    """The files and directories that a run reads, each with its key."""
    if cfg.runner.resume_dir:
        yield "runner.resume_dir", cfg.runner.resume_dir
    if cfg.runner.task == "train_policy" and cfg.algorithm.sac.demo_path:
        yield "algorithm.sac.demo_path", cfg.algorithm.sac.demo_path
    for model in cfg.reward.models if cfg.reward.use_reward_model else ():
        if model.checkpoint_path:
            yield "reward.model.checkpoint_path", str(todays_checkpoint(Path(model.checkpoint_path)))
        yield from (("reward.model.options.expert_data_path", path) for path in _expert_paths(model) if path)
    if cfg.runner.task == "train_reward":
        yield from (("data.data_path", path) for path in cfg.data.paths)
        if encoder := cfg.reward.models[0].pretrained_encoder_path:
            yield "reward.model.pretrained_encoder_path", encoder


def _expert_paths(model: RewardModelConfig) -> list[str | None]:
    found = model.options.get("expert_data_path")
    paths = list(found) if isinstance(found, (list, tuple)) else [found]
    if any(not isinstance(path, (str, NoneType)) for path in paths):
        raise ConfigError(
            f"reward.model.options.expert_data_path: found {json.dumps(found)}, expected a path, or a list of paths"
        )
    return paths
