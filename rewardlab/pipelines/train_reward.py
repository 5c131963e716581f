"""Stage 2: a success classifier from labelled episodes, with figures that say how far it can be trusted."""

from pathlib import Path

from rich.console import Console

from rewardlab.config import ExperimentConfig
from rewardlab.training.processes import joined
from rewardlab.training.reward_run import train_reward_model


def run(cfg: ExperimentConfig, *, console: Console | None = None) -> Path:
    """Train on `cfg.data.data_path`; returns the checkpoint of the best model.

    Under `torchrun` every process calls this; they train as one.
    """
    with joined() as processes:
        return train_reward_model(cfg, processes, console or Console())
