"""Where a policy run is, on disk: learner, counters and whatever else it needs to go on, in one directory.

The state is nested dictionaries and lists of tensors and plain values. Its tensors go to model.safetensors, the rest to
config.json, so that nothing has to be unpickled.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensordict import TensorDictBase
from torch import Tensor

from rewardlab.errors import DataError
from rewardlab.models.weights import read_tensor_file
from rewardlab.rewards.checkpoint import CONFIG, WEIGHTS, write_checkpoint

_TENSOR, _PAIRS = "tensor", "pairs"


def save_state(path: Path, state: Mapping[str, Any], facts: Mapping[str, Any]) -> Path:
    """Write the directory, whole or not at all. `facts` are plain values that say what it is."""
    tensors: dict[str, Tensor] = {}
    skeleton = _taken_apart(state, "state", tensors)
    card = f"# {path.name}\n\nA policy in training. To go on with it: `runner.resume_dir={path}`.\n"
    return write_checkpoint(path, {**facts, "state": skeleton}, tensors, card=card)


def load_state(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state and the facts that `save_state` was given."""
    try:
        config = json.loads((path / CONFIG).read_text())
        tensors = read_tensor_file(path / WEIGHTS)[0]
        return _put_together(config.pop("state"), tensors), config
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not a policy run that can be resumed ({error!r}); expected a directory such as "
            "checkpoints/global_step_100 of an earlier run"
        ) from error


def _taken_apart(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors[name] = value.detach().clone()
        return {_TENSOR: name}
    if isinstance(value, TensorDictBase):
        value = {"batch_size": list(value.batch_size), "columns": dict(value.items())}
        return {"batch": _taken_apart(value, name, tensors)}
    if isinstance(value, Mapping):  # in pairs, because JSON would make text of the numbers that optimizers use as keys
        return {_PAIRS: [[key, _taken_apart(item, f"{name}/{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_taken_apart(item, f"{name}/{number}", tensors) for number, item in enumerate(value)]
    return value


def _put_together(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_put_together(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        return tensors[value[_TENSOR]]
    if "batch" in value:
        from tensordict import TensorDict

        batch = _put_together(value["batch"], tensors)
        return TensorDict(batch["columns"], batch_size=batch["batch_size"])
    return {key: _put_together(item, tensors) for key, item in value[_PAIRS]}
