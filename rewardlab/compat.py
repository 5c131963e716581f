"""Older names of things, and what they are called today. No other module knows an old name.

The documents that describe this workflow use several names for one thing. What they print works as printed; each old
name costs a one-line note. Adding a name is adding a row to a table.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rewardlab.errors import ConfigError


class CompatibilityNote(UserWarning):
    """Says today's name of something that was given by an older one."""


_ENVS = ("train", "eval")

# Old key -> today's. A row for a block holds for every key inside it; the longest row that fits wins.
KEYS: dict[str, str] = {
    # printed without their `reward:` parent (000, 001)
    "reward_mode": "reward.reward_mode",
    "success_reward": "reward.success_reward",
    "fail_reward": "reward.fail_reward",
    "reward_threshold": "reward.reward_threshold",
    "model": "reward.model",
    # 001
    "reward.checkpoint_path": "reward.model.checkpoint_path",
    "runner.num_data_episodes": "data.collection.episodes",
    **{f"env.{env}.override_cfg": "env.train" for env in _ENVS},  # of the task, which both environments share
    # 002
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
    # 003
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

# Today's key -> {old value: today's value}.
VALUES: dict[str, dict[str, str]] = {
    "reward.model.model_type": {"resnet": "resnet_reward"},
}

_ON_REQUEST = "frames are rendered when they are asked for"

# Old key -> why nothing takes its place.
DROPPED: dict[str, str] = {
    **{f"env.{env}.reward_render_mode": _ON_REQUEST for env in _ENVS},
    **{f"env.{env}.init_params.render_mode": _ON_REQUEST for env in _ENVS},
    "reward_training.enabled": "runner.task says what a run does",
    "reward_training.only": "training the reward model and training the policy are two runs",
}

_NEGATIVE = (
    "a reward for failure is a number: set reward.fail_reward. 0.0 is safer than a negative one, with which policies "
    "tend to collapse"
)

# Old key -> why it cannot be switched on. Switched off, it is dropped.
REFUSED: dict[str, str] = {
    "use_negative_reward": _NEGATIVE,
    "reward.use_negative_reward": _NEGATIVE,
}

# Old key or block, when given and not false -> values of other keys, unless those are given.
IMPLIED: dict[str, dict[str, Any]] = {
    "runner.num_data_episodes": {"runner.task": "collect"},
    "reward.collect_data": {"data.collection.format": "npy"},
    "reward.data_collection": {"data.collection.format": "npy"},
    "reward_data_collection": {"data.collection.format": "pickle"},
    "reward_training.enabled": {"runner.task": "train_reward"},
    "reward_training.only": {"runner.task": "train_reward"},
}

# Name of a configuration in the documents -> today's, or None while the part that it needs is not built.
CONFIG_NAMES: dict[str, str | None] = {
    "maniskill_ppo_mlp": None,
    "maniskill_ppo_cnn": None,
    "maniskill_ppo_mlp_collect": None,
    "maniskill_collect_reward_data": None,
    "maniskill_train_reward_model": "reward_training",
    "maniskill_train_resnet_reward": "reward_training",
    "maniskill_ppo_mlp_resnet_reward": None,
    "realworld_collect_data": None,
    "realworld_peginsertion_rlpd_cnn_async": None,
}

# Name of a class in the documents -> today's, in the same module.
CLASS_NAMES: dict[str, str] = {
    "ImageRewardWorker": "RewardWorker",  # 000, 001
    "EmbodiedRewardWorker": "RewardWorker",  # 002
}


class Translation(NamedTuple):
    """A mapping in today's names."""

    mapping: dict[str, Any]
    implied: dict[str, Any]  # values that old names stand for; weaker than any value that is given
    notes: list[str]


KeyPath = tuple[str, ...]


def translate(mapping: Mapping[str, Any]) -> Translation:
    """The same configuration in today's names. The argument is not changed."""
    result = Translation({}, {}, [])
    written: dict[KeyPath, str] = {}  # today's key -> how the user wrote it
    for path, value in _leaves(mapping):
        name = ".".join(path)
        _add_implied(path, value, result)
        if _is_gone(path, value, result.notes):
            continue
        today = _todays_path(path, result.notes)
        value = _todays_value(".".join(today), value, result.notes)
        if today in written and (found := _get(result.mapping, today)) != value:
            raise ConfigError(
                f"{written[today]} = {found!r} and {name} = {value!r} set the same key: keep {'.'.join(today)} alone"
            )
        written[today] = name
        _put(result.mapping, today, value)
    return result._replace(notes=list(dict.fromkeys(result.notes)))


def _leaves(mapping: Mapping[str, Any], prefix: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in mapping.items():
        path = (*prefix, str(key))
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, path)
        else:
            yield path, value


def _row(table: Mapping[str, Any], path: KeyPath) -> str | None:
    """The longest row of a table that is this key or a block around it."""
    rows = (".".join(path[:n]) for n in range(len(path), 0, -1))
    return next((row for row in rows if row in table), None)


def _add_implied(path: KeyPath, value: Any, result: Translation) -> None:
    row = _row(IMPLIED, path)
    if row is None or value is False:
        return
    for key, implied in IMPLIED[row].items():
        _put(result.implied, tuple(key.split(".")), implied)
        result.notes.append(f"{row} implies {key}={implied} unless that is given")


def _is_gone(path: KeyPath, value: Any, notes: list[str]) -> bool:
    refused, dropped = _row(REFUSED, path), _row(DROPPED, path)
    if refused is not None and value is not False:
        raise ConfigError(f"{refused} = {value!r} is not supported: {REFUSED[refused]}")
    if dropped is not None:
        notes.append(f"{dropped} is ignored: {DROPPED[dropped]}")
    if refused is not None:
        notes.append(f"{refused} is ignored: {REFUSED[refused]}")
    return refused is not None or dropped is not None


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


def _get(mapping: Any, path: KeyPath) -> Any:
    for key in path:
        mapping = mapping[key]
    return mapping


def _put(mapping: dict[str, Any], path: KeyPath, value: Any) -> None:
    for depth, key in enumerate(path[:-1], start=1):
        mapping = mapping.setdefault(key, {})
        if not isinstance(mapping, dict):
            raise ConfigError(f"{'.'.join(path[:depth])} = {mapping!r} and {'.'.join(path)} cannot both be given")
    found = mapping.setdefault(path[-1], value)
    if found is not value and found != value and value != {}:
        raise ConfigError(f"{'.'.join(path)}: found both {found!r} and {value!r}, expected one of them")
