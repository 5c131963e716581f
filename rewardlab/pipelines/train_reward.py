"""Trains a success classifier on labelled episodes and measures how far it can be trusted."""

from pathlib import Path

from rich.console import Console

from rewardlab.config import ExperimentConfig
from rewardlab.console import make_console
from rewardlab.devices import memory_errors_named
from rewardlab.errors import ConfigError, RewardlabError
from rewardlab.run_state import checkpoint_directory, resume_override
from rewardlab.stopping import StopSignals, stop_signals
from rewardlab.training.processes import joined
from rewardlab.training.reward_run import train_reward_model
from rewardlab.workers import Cluster, WorkerDied
from rewardlab.workers.placement import NodeLost, training_device
from rewardlab.workers.reward import train_on_group


def run(cfg: ExperimentConfig, *, console: Console | None = None) -> Path:
    """Train on `cfg.data.data_path`; returns the checkpoint of the best model.

    Under `torchrun` every process calls this, and they train one model together. With `cluster.backend=ray`,
    `cluster.workers.actor` workers do.
    """
    with stop_signals() as stop:
        return _train(cfg, console or make_console(), stop)


def _train(cfg: ExperimentConfig, console: Console, stop: StopSignals) -> Path:
    if cfg.cluster.backend == "ray":
        try:
            with Cluster(cfg.cluster) as cluster, stop.deferred("this step"):
                return train_on_group(cluster, cfg, stop)
        except (WorkerDied, NodeLost) as failure:
            last = checkpoint_directory(cfg) / "last"
            if not last.exists():
                raise
            advice = f"The training continues with the same command and {resume_override(last)}"
            raise RewardlabError(f"{failure}. {advice}") from None
    workers = cfg.cluster.workers.get("actor", 1)
    if workers > 1:
        raise ConfigError(
            f"cluster.workers.actor: found {workers}, but cluster.backend local trains in one process; set "
            f"cluster.backend=ray, or start with torchrun --nproc-per-node {workers} -m rewardlab.cli train-reward"
        )
    device = training_device(cfg.cluster)
    with memory_errors_named("actor", device), joined(device) as processes:
        return train_reward_model(cfg, processes, console, stop)
