"""Where a training run is, on disk: weights, optimizer and progress, in one directory that appears whole or never."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from rewardlab.errors import DataError
from rewardlab.models.weights import check_weights, read_tensor_file
from rewardlab.rewards.checkpoint import CONFIG, WEIGHTS, write_checkpoint
from rewardlab.training.fit import Fit, FitProgress

_NETWORK, _OPTIMIZER = "network.", "optimizer."


def save_run(path: Path, fit: Fit, description: dict[str, Any]) -> None:
    """Called on every process; the leader writes."""
    weights = fit.weights()
    optimizer = fit.processes.optimizer_state(fit.network, fit.optimizer)
    if not fit.processes.leads:
        return
    tensors = {_NETWORK + name: tensor for name, tensor in weights.items()}
    for parameter, state in optimizer["state"].items():
        tensors |= {f"{_OPTIMIZER}{parameter}/{name}": value for name, value in state.items()}
    write_checkpoint(path, {**description, "progress": fit.progress.to_json()}, tensors)


def restore_run(path: Path, fit: Fit) -> None:
    """Continue where `save_run` was; the number of processes may be another one."""
    tensors, progress = _read(path)
    network = {name.removeprefix(_NETWORK): t for name, t in tensors.items() if name.startswith(_NETWORK)}
    check_weights(fit.network.state_dict(), network, path)
    fit.processes.restore_weights(fit.network, network)
    state: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith(_OPTIMIZER):
            parameter, _, field = name.removeprefix(_OPTIMIZER).rpartition("/")
            state.setdefault(parameter, {})[field] = tensor
    fit.processes.restore_optimizer(fit.network, fit.optimizer, state)
    fit.progress = progress


def _read(path: Path) -> tuple[dict[str, Tensor], FitProgress]:
    try:
        progress = json.loads((path / CONFIG).read_text())["progress"]
        curves = {name: [(int(step), float(value)) for step, value in c] for name, c in progress["curves"].items()}
        return read_tensor_file(path / WEIGHTS)[0], FitProgress(**{**progress, "curves": curves})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not a training run that can be resumed ({error}); expected the directory "
            "checkpoints/last of an earlier run"
        ) from error
