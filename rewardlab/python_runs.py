"""Training from Python, by the pipelines of the commands: `rewardlab.train_classifier`, `rewardlab.train_policy`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from gymnasium.vector import VectorEnv

from rewardlab.cli.run import run_config
from rewardlab.config import ExperimentConfig, load_config, text_override
from rewardlab.console import make_console
from rewardlab.errors import ConfigError
from rewardlab.figures.trust import TrustFigures
from rewardlab.nested import leaves
from rewardlab.pipelines.evaluate import evaluate
from rewardlab.pipelines.trained_policy import TrainedPolicy
from rewardlab.pipelines.trusted_modules import named_modules
from rewardlab.reports.history import HISTORY, read_history
from rewardlab.rewards.checkpoint import read_checkpoint
from rewardlab.rewards.success_model import SuccessModel, load
from rewardlab.run_directories import REPORT

# Keys of the config with their values, dotted or nested; or as on the command line: ["runner.max_epochs=5"].
Overrides: TypeAlias = Mapping[str, Any] | Sequence[str]


@dataclass(frozen=True)
class ClassifierRun:
    """The results of training a success classifier."""

    directory: Path
    checkpoint: Path  # of the best model, with its model card
    config: ExperimentConfig

    @property
    def report(self) -> Path:
        """The page with figures, curves and the worst errors."""
        return self.directory / REPORT

    @cached_property
    def figures(self) -> TrustFigures:
        """How far the model can be trusted: `figures.sentence()`, `figures.estimates["fpr"]`, `figures.warnings` ..."""
        return TrustFigures.from_json((read_checkpoint(self.checkpoint).config or {})["metrics"])

    def load(self, device: str = "auto") -> SuccessModel:
        """Return the trained model, ready to judge frames."""
        return load(self.checkpoint, device=device)


@dataclass(frozen=True)
class PolicyRun:
    """The results of training a policy."""

    directory: Path
    checkpoint: Path  # the last one
    config: ExperimentConfig

    @property
    def report(self) -> Path:
        """The page with curves, the audit and disputed frames."""
        return self.directory / REPORT

    @cached_property
    def history(self) -> list[dict[str, float]]:
        """The metrics of every iteration, such as `env_steps` and `env/success_at_end`."""
        return read_history(self.directory / HISTORY)

    def evaluate(self, episodes: int = 100, seed: int = 1) -> dict[str, float]:
        """Return mean return, length and true success of the policy at its best, without exploration."""
        trusted = named_modules(self.config.env.eval)
        return evaluate(self.checkpoint, episodes=episodes, seed=seed, trust_modules=trusted)[1]

    def load(self, env: VectorEnv[Any, Any, Any], *, explore: bool = False, seed: int = 0) -> TrainedPolicy:
        """Return the policy; `policy.act(observation)` gives the actions for a batch of observations of `env`."""
        return TrainedPolicy(self.checkpoint, env, seed, explore=explore)


def train_classifier(
    data: str | Path | Sequence[str | Path],
    out: str | Path,
    overrides: Overrides = (),
    *,
    config: str = "reward_training",
    quiet: bool = False,
) -> ClassifierRun:
    """Train a success classifier on directories of labelled episodes, as `rewardlab train-reward` does.

    >>> run = rewardlab.train_classifier("data/pickcube", "runs/classifier", {"runner.max_epochs": 5})
    >>> run.figures.sentence()
    >>> model = run.load()

    `overrides` are keys of the config, which `rewardlab config show reward_training` explains.
    """
    given = {"data.data_path": data if isinstance(data, (str, Path)) else list(data), **_placed_in(out)}
    cfg = load_config(config, [*_as_texts(overrides), *_as_texts(given)])
    return ClassifierRun(Path(out), _run(cfg, "train_reward", quiet), cfg)


def train_policy(
    config: str | Path, overrides: Overrides = (), *, out: str | Path | None = None, quiet: bool = False
) -> PolicyRun:
    """Train a policy as a config says, as `rewardlab run` does.

    >>> model = "runs/classifier/checkpoints/best_model"
    >>> run = rewardlab.train_policy("tabletop_ppo_mlp_resnet_reward", {"reward.model.checkpoint_path": model})
    >>> run.evaluate(episodes=100)["success_at_end"]

    `config` is a name from `rewardlab config list`, or the path of a YAML file. `out` takes the place of the directory
    of results that it names.
    """
    cfg = load_config(str(config), [*_as_texts(overrides), *_as_texts({} if out is None else _placed_in(out))])
    directory = Path(cfg.runner.logger.log_path, cfg.runner.logger.experiment_name)
    return PolicyRun(directory, _run(cfg, "train_policy", quiet), cfg)


def _run(cfg: ExperimentConfig, task: str, quiet: bool) -> Path:
    if cfg.runner.task != task:
        raise ConfigError(f"runner.task: found {cfg.runner.task}, expected {task} here; choose another config")
    return run_config(cfg, make_console(quiet=quiet))


def _placed_in(out: str | Path) -> dict[str, Any]:
    return {"runner.logger.log_path": Path(out), "runner.logger.experiment_name": ""}


def _as_texts(overrides: Overrides) -> list[str]:
    """Return overrides as the command line has them; None is null."""
    if isinstance(overrides, str):
        raise ConfigError(f"overrides: found the text {overrides!r}, expected a list of key=value, or a dictionary")
    if not isinstance(overrides, Mapping):
        return list(overrides)
    return [_as_text(".".join(path), value) for path, value in leaves(overrides)]


def _as_text(key: str, value: Any) -> str:
    if isinstance(value, (str, Path)):
        return text_override(key, str(value))
    if isinstance(value, (list, tuple)):  # texts are quoted, also in lists
        return f"{key}=[{','.join(_as_text('', item)[1:] for item in value)}]"
    return f"{key}={json.dumps(value.item() if hasattr(value, 'item') else value)}"
