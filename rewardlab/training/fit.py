"""The training loop of a success classifier.

One monitored metric decides both which weights are the best and when training stops. All randomness of a step depends
on the seed and the step's number alone, so that a resumed run ends with the weights of an uninterrupted one.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rewardlab.config import ExperimentConfig
from rewardlab.data.frames import FrameTable
from rewardlab.data.stored_frames import FrameBatch
from rewardlab.devices import seeded_generator, to_device
from rewardlab.errors import DataError
from rewardlab.figures.metrics import Floats
from rewardlab.models.classifiers import ImageClassifier, success_loss
from rewardlab.models.image_preprocessor import ImageArray
from rewardlab.models.learning_rate import WARM_UP, RunSchedule
from rewardlab.models.precision import compute_dtype
from rewardlab.stopping import StopRequest
from rewardlab.training.augment import augment_cameras
from rewardlab.training.loader import FrameLoader
from rewardlab.training.processes import Processes

MONITORS = {"val_loss": -1, "val_accuracy": 1}  # 1: higher is better, -1: lower is better


@dataclass
class FitProgress:
    """Counters and curves of a run: what a resumed run needs besides weights and optimizer."""

    epoch: int = 0  # epochs finished
    batches: int = 0  # of the epoch that goes on
    step: int = 0  # optimizer steps taken
    best: float | None = None
    best_epoch: int = 0
    stale: int = 0  # validations without improvement
    stopped: str | None = None  # why training ended before max_epochs
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def note(self, name: str, value: float) -> None:
        self.curves.setdefault(name, []).append((self.step, value))

    def latest(self, prefix: str) -> dict[str, float]:
        """Return the values of the current step whose names start with `prefix`."""
        last = {name: points[-1] for name, points in self.curves.items() if name.startswith(prefix)}
        return {name: value for name, (step, value) in last.items() if step == self.step}

    def row(self, after: int) -> dict[str, float]:
        """Return the figures of an epoch that began after this step: the mean loss, and those of its validation."""
        losses = [loss for step, loss in self.curves.get("train/loss", []) if step > after]
        mean = {"train/loss": sum(losses) / len(losses)} if losses else {}
        return {"epoch": self.epoch, **mean, **self.latest("valid/")}


class Fit:
    """Trains `network` as `cfg` says. It writes no files: `epochs` yields after each epoch, and the caller saves.

    Each process passes `actor.micro_batch_size` frames through the network at once.
    """

    def __init__(
        self,
        network: ImageClassifier,
        train: FrameTable,
        cfg: ExperimentConfig,
        validate: Callable[[dict[str, Tensor]], dict[str, float]],
        processes: Processes | None = None,
        stop: StopRequest | None = None,
    ) -> None:
        self.network = network
        self.cfg = cfg
        self.processes = processes or Processes()
        self.device = self.processes.device
        self.progress = FitProgress()
        self.interrupted = False  # a stop was requested of one of the processes
        self._stop = stop or StopRequest()
        self._validate = validate
        bf16 = compute_dtype(cfg.reward.models[0].precision, self.device) == torch.bfloat16
        self.bf16 = self.processes.mean(float(bf16)) == 1.0  # the same format in all processes
        self.processes.shard(network, self.bf16)
        trainable = [parameter for parameter in network.parameters() if parameter.requires_grad]
        optim = cfg.actor.optim
        self.optimizer = torch.optim.AdamW(trainable, lr=optim.lr, weight_decay=optim.weight_decay)
        self.schedule = RunSchedule(self.optimizer, optim.schedule)
        self.loader = FrameLoader(train, network.preprocess.image_keys, cfg, self.processes)

    @property
    def total_steps(self) -> int:
        steps = self.cfg.runner.max_epochs * len(self.loader)
        return min(steps, self.cfg.runner.max_steps or steps)

    def epochs(self, on_step: Callable[[float], None] = lambda loss: None) -> Iterator[bool]:
        """Train until finished; yields after each epoch whether its weights are the best so far.

        After a stop request it ends with `interrupted`, perhaps in the middle of an epoch.
        """
        progress = self.progress
        while not self.finished:
            for batch in self.loader.epoch(progress.epoch, progress.batches):
                loss = self._step(batch)
                progress.step, progress.batches = progress.step + 1, progress.batches + 1
                progress.note("train/loss", loss)
                on_step(loss)
                if progress.step == self.total_steps:
                    break
                if self.interrupted:
                    return
            progress.epoch, progress.batches = progress.epoch + 1, 0
            last = self.finished
            due = progress.epoch % self.cfg.runner.val_check_interval == 0
            yield self._improved() if due or last else False

    def weights(self) -> dict[str, Tensor]:
        """Return the network's weights; empty on all processes but the leader."""
        return self.processes.weights(self.network)

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs. Call it on every process; only the leader's state is complete."""
        weights = self.weights()
        optimizer = self.processes.optimizer_state(self.network, self.optimizer)
        return {"network": weights, "optimizer": optimizer, "progress": asdict(self.progress)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called; the number of processes may differ."""
        self.processes.restore(self.network, self.optimizer, state["network"], state["optimizer"])
        curves = state["progress"]["curves"].items()
        pairs = {name: [(step, value) for step, value in points] for name, points in curves}
        self.progress = FitProgress(**{**state["progress"], "curves": pairs})

    @property
    def finished(self) -> bool:
        spent = self.progress.step >= self.total_steps or self.progress.epoch >= self.cfg.runner.max_epochs
        return spent or self.progress.stopped is not None

    def _step(self, batch: FrameBatch) -> float:
        """Make one optimizer step over micro-batches; returns the mean loss over all processes."""
        seeds = np.random.SeedSequence([self.cfg.seed, self.progress.step, self.processes.rank])
        torch.manual_seed(int(seeds.generate_state(1)[0]))  # dropout
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        step, total = self.progress.step, self.total_steps
        self.schedule.set_progress(step / total, warm_up=(step + 1) / max(1.0, WARM_UP * total))
        loss_sum = 0.0
        for images, label, share, last in self._micro_batches(batch):
            if self.processes.many:
                self.network.set_requires_gradient_sync(last)  # type: ignore[operator]
            loss = self._loss(images, label) * share
            loss.backward()  # type: ignore[no-untyped-call]
            loss_sum += float(loss.detach())
        mean_loss, asked = self.processes.means(loss_sum, float(self._stop.requested))
        self.interrupted = asked > 0
        if not math.isfinite(mean_loss):
            raise DataError(self._describe_failure(batch, mean_loss))
        if self.cfg.actor.optim.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.cfg.actor.optim.max_grad_norm)
        self.optimizer.step()
        return mean_loss

    def _loss(self, images: Mapping[str, ImageArray], label: Tensor) -> Tensor:
        # Under FSDP the mixed-precision policy casts; in a single process, autocast does.
        low = self.bf16 and not self.processes.many
        with torch.autocast(self.device.type, torch.bfloat16, enabled=low):
            logits = self.network(images)
        return success_loss(logits, label)

    def _micro_batches(self, batch: FrameBatch) -> Iterator[tuple[Mapping[str, ImageArray], Tensor, float, bool]]:
        actor, count = self.cfg.actor, len(batch.label)
        size = actor.micro_batch_size or actor.global_batch_size
        generator = seeded_generator(torch.initial_seed(), self.device)
        for start in range(0, count, size):
            part = slice(start, start + size)
            whole = {camera: to_device(pictures[part], self.device) for camera, pictures in batch.images.items()}
            images = self.network.preprocess.cut(whole)
            if self.cfg.data.augment:
                images = augment_cameras(images, generator)
            label = batch.label[part]
            yield images, label, len(label) / count, start + size >= count

    def _improved(self) -> bool:
        """Validate; returns whether the monitored metric is the best so far."""
        progress, early_stop = self.progress, self.cfg.runner.early_stop
        weights = self.weights()
        figures = self.processes.from_leader(self._validate(weights) if self.processes.leads else None)
        for name, value in figures.items():
            progress.note(name.replace("val_", "valid/", 1), value)
        value = figures[early_stop.monitor]
        better = progress.best is None or (value - progress.best) * MONITORS[early_stop.monitor] > 0
        if better:
            progress.best, progress.best_epoch, progress.stale = value, progress.epoch, 0
        else:
            progress.stale += 1
            if early_stop.patience is not None and progress.stale >= early_stop.patience:
                progress.stopped = f"{early_stop.monitor} did not improve in {progress.stale} validations"
        return better

    def _describe_failure(self, batch: FrameBatch, loss: float) -> str:
        table = self.loader.table
        names = [f"{table.episodes[table.episode[k]].path.name} frame {table.time[k]}" for k in batch.rows[:5]]
        return (
            f"the loss became {loss} in epoch {self.progress.epoch}, step {self.progress.step}; its batch begins with "
            f"{', '.join(names)}. The last good weights are kept. A smaller actor.optim.lr usually helps"
        )


def validation_figures(logits: Floats, table: FrameTable) -> dict[str, float]:
    """Compute the metrics that can be monitored, without rebalancing the classes."""
    label = torch.from_numpy(table.label)
    loss = success_loss(torch.from_numpy(logits), label)
    return {"val_loss": float(loss), "val_accuracy": float(((logits > 0) == table.label).mean())}
