"""The best model of a training run as one .pt file, beside its checkpoint directory."""

import copy
import io
from pathlib import Path
from typing import Any

import torch

from rewardlab.data.atomic import replace_file
from rewardlab.data.stored_frames import validation_logits
from rewardlab.rewards import load_success_classifier
from rewardlab.rewards.checkpoint import read_checkpoint
from rewardlab.training.fit import Fit, validation_figures


class BestModelFile:
    """Holds the optimizer's state at the best epoch, and writes it with the weights and their figures.

    Without a path it does nothing. The optimizer's state is left out where several processes share it, and where the
    best epoch was before the run was continued.
    """

    def __init__(self, path: str | None) -> None:
        self.path = None if path is None else Path(path)
        self._optimizer: dict[str, Any] = {}

    def keep_optimizer(self, fit: Fit) -> None:
        """Call it whenever the weights are the best so far."""
        if self.path is not None and not fit.processes.many:
            self._optimizer = copy.deepcopy(fit.optimizer.state_dict())

    def write(self, checkpoint: Path, fit: Fit) -> None:
        """Write the model of `checkpoint`, which has its threshold and its metrics by now."""
        if self.path is None:
            return
        stored, model, train = read_checkpoint(checkpoint), load_success_classifier(checkpoint), fit.loader.table
        figures = validation_figures(validation_logits(model.logits, train, model.image_keys), train)
        content = {
            "epoch": fit.progress.best_epoch,
            "model_state_dict": stored.weights,
            "optimizer_state_dict": self._optimizer,
            "train_loss": figures["val_loss"],
            "train_acc": figures["val_accuracy"],
            "config": stored.config,  # makes the file explain itself: architecture, threshold, figures
        }
        buffer = io.BytesIO()
        torch.save(content, buffer)
        replace_file(self.path, buffer.getvalue())
