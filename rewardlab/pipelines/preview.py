"""Says what a run is about to do, and stops one whose classifier recognises next to nothing. Imports no torch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from rewardlab.config import ExperimentConfig
from rewardlab.config.schema import RewardConfig, RewardModelConfig
from rewardlab.console import print_line
from rewardlab.envs.early_checks import check_env
from rewardlab.errors import ConfigError, DataError
from rewardlab.figures.trust import TrustFigures
from rewardlab.figures.words import share, shown
from rewardlab.models.checkpoint_config import CONFIG, read_config


def announce(cfg: ExperimentConfig, console: Console) -> None:
    """Print what the run will do.

    Raise a ConfigError if its environment does not exist, or its classifier recognises less than `reward.min_recall`.
    """
    if cfg.runner.task != "train_reward":
        check_env(cfg.env.train)
    for title, words in describe_run(cfg):
        print_line(console, words, title=title)
    if cfg.runner.task == "train_policy" and cfg.reward.use_reward_model:
        _check_recall(cfg.reward)


def describe_run(cfg: ExperimentConfig) -> Iterator[tuple[str, str]]:
    """Yield a title and words for each thing that a user should know before a run begins."""
    runner, env, plan = cfg.runner, cfg.env.train, cfg.data.collection
    results = Path(runner.logger.log_path, runner.logger.experiment_name)
    if runner.task == "collect":
        yield "task", f"collect {_amount(cfg)} of {env.task} with the policy {plan.policy}"
        results = Path(plan.save_dir)
    elif runner.task == "train_reward":
        kind = cfg.reward.models[0].model_type or "resnet_reward"
        yield "task", f"train a success classifier ({kind}) for up to {runner.max_epochs} epochs"
        yield "data", ", ".join(cfg.data.paths)
    else:
        yield "task", f"train a policy on {env.task}"
        yield "algorithm", _describe_training(cfg)
        if not cfg.reward.use_reward_model:
            yield "reward", f"the environment's own ({env.reward})"
        else:
            for model in cfg.reward.models:
                yield "reward", f"{_name(model)}, {cfg.reward.reward_mode}, {cfg.reward.combine_mode}"
                if model.checkpoint_path is not None:
                    yield from _describe_trust(_read_figures(model.checkpoint_path))
    if runner.resume_dir is not None:
        yield "continues", runner.resume_dir
    yield "results", str(results)


def _amount(cfg: ExperimentConfig) -> str:
    plan = cfg.data.collection
    if plan.episodes is not None:
        return f"{plan.episodes:,} episodes"
    return f"{plan.target_success:,} episodes with success and {plan.target_failure:,} without"


def _describe_training(cfg: ExperimentConfig) -> str:
    runner, envs = cfg.runner, cfg.env.train.num_envs
    steps = runner.max_epochs * cfg.algorithm.rollout_steps * envs
    steps = steps if runner.max_env_steps is None else min(steps, runner.max_env_steps)
    counted = "1 environment" if envs == 1 else f"{envs:,} environments"
    return f"{cfg.algorithm.name} in {counted}, up to {steps:,} steps in all (runner.max_epochs={runner.max_epochs})"


def _name(model: RewardModelConfig) -> str:
    return str(model.checkpoint_path or model.name or model.model_type)


def _read_figures(checkpoint: str) -> TrustFigures | None:
    """Return the figures of trust that a checkpoint stores; None if it has none, as those of other reward models."""
    metrics = _stored_config(Path(checkpoint)).get("metrics")
    try:
        return TrustFigures.from_json(metrics) if metrics else None
    except DataError:  # of an earlier version, or of another tool
        return None


def _stored_config(checkpoint: Path) -> dict[str, Any]:
    if (checkpoint / CONFIG).is_file():
        return read_config(checkpoint / CONFIG)
    from rewardlab.rewards.checkpoint import read_checkpoint  # imports torch: files have the config beside the weights

    return read_checkpoint(checkpoint).config or {}


def _describe_trust(figures: TrustFigures | None) -> Iterator[tuple[str, str]]:
    if figures is None:
        yield "  its figures", "not known: the checkpoint has none"
        return
    fpr, recall = (" ".join(filter(None, shown(figures.estimates[name], "share"))) for name in ("fpr", "recall"))
    yield "  false positives", f"{fpr} of failure frames are called success"
    yield "  recall", f"{recall} of success frames are recognised"
    counts = figures.counts
    yield "  measured on", f"{counts.episodes} held-out episodes, {counts.success_episodes} with success ([]: 95 %)"


def _check_recall(reward: RewardConfig) -> None:
    """Raise if a policy would hardly ever be rewarded: its success is above the stored threshold too rarely."""
    if reward.reward_type != "binary" or reward.reward_threshold is not None:
        return
    for model in reward.models:
        if model.checkpoint_path is None or reward.cotrains(model):  # the latter goes on learning
            continue
        figures = _read_figures(model.checkpoint_path)
        recall = None if figures is None else figures.estimates["recall"].value
        if figures is not None and recall is not None and recall < reward.min_recall:
            raise ConfigError(
                f"reward.model.checkpoint_path: {model.checkpoint_path} recognises {share(recall)} of success frames "
                f"at its threshold {figures.threshold:.3g}, less than reward.min_recall={reward.min_recall:g}, so that "
                "a policy would hardly ever be rewarded. Train a better classifier (its report shows what it misses), "
                "choose another reward.reward_threshold, or go on all the same with reward.min_recall=0"
            )
