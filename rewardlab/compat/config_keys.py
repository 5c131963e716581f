"""Older keys of a config, and today's. Adding one is adding a row to a table."""

from collections.abc import Mapping
from typing import Any

from rewardlab.compat import Translation
from rewardlab.errors import ConfigError
from rewardlab.nested import KeyPath, leaves, put

_ENVS = ("train", "eval")

# Older key -> today's. A row for a block holds for every key inside it; the longest row that fits wins.
KEYS: dict[str, str] = {
    # without their `reward:` parent
    "reward_mode": "reward.reward_mode",
    "success_reward": "reward.success_reward",
    "fail_reward": "reward.fail_reward",
    "reward_threshold": "reward.reward_threshold",
    "model": "reward.model",
    "reward.checkpoint_path": "reward.model.checkpoint_path",
    "runner.num_data_episodes": "data.collection.episodes",
    **{f"env.{env}.override_cfg": "env.train" for env in _ENVS},  # of the task, which both environments share
    "reward.reward_model": "reward.model",
    "reward.reward_model.reward_type": "reward.reward_type",
    "reward.collect_data": "data.collection.enabled",
    "reward.data_collection": "data.collection",
    "reward.data_collection.positive_dir": "data.collection.success_dir",
    "reward.data_collection.negative_dir": "data.collection.failure_dir",
    "reward.data_collection.image_keys": "data.collection.cameras",
    "reward.data_collection.max_positive_trajectories": "data.collection.target_success",
    "reward.data_collection.max_negative_trajectories": "data.collection.target_failure",
    "actor.model.image_keys": "env.train.cameras",
    "actor.model.image_size": "env.train.image_size",
    "reward_data_collection": "data.collection",
    "reward_training.data_path": "data.data_path",
    "reward_training.epochs": "runner.max_epochs",
    "reward_training.micro_batch_size": "actor.micro_batch_size",
    "reward_training.global_batch_size": "actor.global_batch_size",
    "reward_training.lr": "actor.optim.lr",
    "reward_training.save_dir": "runner.checkpoint_dir",
    "reward.mode": "reward.combine_mode",
    "reward.reward_model_type": "reward.model.model_type",
    "reward.resnet": "reward.model",
    **{f"env.{env}.init_params": f"env.{env}.options" for env in _ENVS},
    **{f"env.{env}.init_params.id": f"env.{env}.id" for env in _ENVS},
    **{f"env.{env}.init_params.obs_mode": f"env.{env}.obs_mode" for env in _ENVS},
}

# Today's key -> {older value: today's value}.
VALUES: dict[str, dict[str, str]] = {
    "reward.model.model_type": {"resnet": "resnet_reward"},
}

_ON_REQUEST = "frames are rendered when they are asked for"

# Older key -> why nothing takes its place.
DROPPED: dict[str, str] = {
    **{f"env.{env}.reward_render_mode": _ON_REQUEST for env in _ENVS},
    **{f"env.{env}.init_params.render_mode": _ON_REQUEST for env in _ENVS},
    "runner.logger.backends": "TensorBoard files are always written",
    "reward_training.enabled": "runner.task says what a run does",
    "reward_training.only": "training the reward model and training the policy are two runs",
}

_NEGATIVE = (
    "a reward for failure is a number: set reward.fail_reward. 0.0 is safer than a negative one, with which policies "
    "tend to collapse"
)

# Older key -> why it cannot be switched on. Switched off, it is dropped.
REFUSED: dict[str, str] = {
    "use_negative_reward": _NEGATIVE,
    "reward.use_negative_reward": _NEGATIVE,
}

# Older key or block, when given and not false -> values of other keys, unless those are given.
IMPLIED: dict[str, dict[str, Any]] = {
    "runner.num_data_episodes": {"runner.task": "collect"},
    "reward.collect_data": {"data.collection.format": "npy"},
    "reward.data_collection": {"data.collection.format": "npy"},
    "reward_data_collection": {"data.collection.format": "pickle"},
    "reward_training.enabled": {"runner.task": "train_reward"},
    "reward_training.only": {"runner.task": "train_reward"},
}


def translate(mapping: Mapping[str, Any]) -> Translation:
    """The same configuration in today's names. The argument is not changed."""
    result = Translation({}, {}, [])
    written: dict[KeyPath, tuple[str, Any]] = {}  # today's key -> the key as given, its value
    for path, value in leaves(mapping):
        _add_implied(path, value, result)
        if _is_gone(path, value, result.notes):
            continue
        today = _todays_path(path, result.notes)
        key, name = ".".join(today), ".".join(path)
        value = _todays_value(key, value, result.notes)
        other, found = written.setdefault(today, (name, value))
        if found is not value and found != value:
            raise ConfigError(f"{other} = {found!r} and {name} = {value!r} set the same key: keep {key} alone")
        put(result.mapping, today, value)
    return result._replace(notes=list(dict.fromkeys(result.notes)))


def _row(table: Mapping[str, Any], path: KeyPath) -> str | None:
    """The longest row of a table that is this key or a block around it."""
    rows = (".".join(path[:n]) for n in range(len(path), 0, -1))
    return next((row for row in rows if row in table), None)


def _add_implied(path: KeyPath, value: Any, result: Translation) -> None:
    row = _row(IMPLIED, path)
    if row is None or value is False:
        return
    for key, implied in IMPLIED[row].items():
        put(result.implied, tuple(key.split(".")), implied)
        result.notes.append(f"{row} implies {key}={implied} unless that is given")


def _is_gone(path: KeyPath, value: Any, notes: list[str]) -> bool:
    for table in (REFUSED, DROPPED):
        row = _row(table, path)
        if row is None:
            continue
        if table is REFUSED and value is not False:
            raise ConfigError(f"{row} = {value!r} is not supported: {table[row]}")
        notes.append(f"{row} is ignored: {table[row]}")
        return True
    return False


def _todays_path(path: KeyPath, notes: list[str]) -> KeyPath:
    row = _row(KEYS, path)
    if row is None:
        return path
    notes.append(f"{row} is now {KEYS[row]}")
    return (*KEYS[row].split("."), *path[row.count(".") + 1 :])


def _todays_value(key: str, value: Any, notes: list[str]) -> Any:
    renamed = VALUES.get(key, {})
    if not isinstance(value, str) or value not in renamed:
        return value
    notes.append(f"{key}: {value} is now {renamed[value]}")
    return renamed[value]
