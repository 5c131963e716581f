"""Weights & Biases as a further view of a run's figures and pictures, where a config asks for it."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rewardlab.config import ExperimentConfig
from rewardlab.stopping import kept_handlers

Picture = npt.NDArray[np.uint8]


class WandbLog:
    """Logs to one run of Weights & Biases, which a resumed run continues."""

    def __init__(self, cfg: ExperimentConfig, directory: Path) -> None:
        import wandb  # config.run_checks has seen that it is there

        logger, place = cfg.runner.logger, directory.resolve()
        self._make_image: Any = wandb.Image
        with kept_handlers():
            self._run: Any = wandb.init(
                project=logger.wandb_project,
                name=logger.experiment_name or place.name,
                id=hashlib.sha256(str(place).encode()).hexdigest()[:12],
                resume="allow",
                dir=str(directory),
                mode="offline" if logger.wandb_offline else "online",
                config=asdict(cfg),
                settings=wandb.Settings(console="off", silent=True),
            )

    def plot(self, step: int, figures: Mapping[str, float]) -> None:
        self._run.log(dict(figures), step=step)

    def show(self, step: int, pictures: Mapping[str, Picture]) -> None:
        self._run.log({name: self._make_image(picture) for name, picture in pictures.items()}, step=step)

    def close(self) -> None:
        self._run.finish()


def open_wandb(cfg: ExperimentConfig, directory: Path) -> WandbLog | None:
    """Return the log that a config asks for."""
    return None if cfg.runner.logger.wandb_project is None else WandbLog(cfg, directory)
