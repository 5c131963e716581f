"""Warns where a success classifier judges another task than those of the episodes that trained it."""

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from rewardlab.config.schema import RewardConfig
from rewardlab.config.task_names import parts_in_pictures
from rewardlab.data.episodes import UNKNOWN
from rewardlab.limits import listed
from rewardlab.rewards.checkpoint import read_checkpoint

Tasks: TypeAlias = tuple[str, ...]


def read_tasks(config: Mapping[str, Any] | None) -> Tasks | None:
    """Return the tasks that the config of a checkpoint names; None if it names none, as those of older versions."""
    tasks = (config or {}).get("tasks")
    named = isinstance(tasks, (list, tuple)) and len(tasks) > 0 and all(isinstance(task, str) for task in tasks)
    return tuple(tasks) if named else None  # type: ignore[arg-type]


def other_tasks(trained: Tasks | None, tasks: Iterable[str]) -> list[str]:
    """Return those of `tasks` whose frames look different from all that a classifier was `trained` on.

    There are none where a name is not known: pickles and .npy files, for example, do not store it.
    """
    if trained is None or UNKNOWN in trained:
        return []
    familiar = {parts_in_pictures(task) for task in trained}
    return [task for task in tasks if task != UNKNOWN and parts_in_pictures(task) not in familiar]


def warn_about_run(reward: RewardConfig, task: str) -> None:
    """Warn of each checkpoint of a run that was trained on other tasks than the run's."""
    for path in dict.fromkeys(model.checkpoint_path for model in reward.models if model.checkpoint_path is not None):
        trained = read_tasks(read_checkpoint(Path(path)).config)
        if trained is not None and other_tasks(trained, [task]):
            _warn(
                f"reward.model.checkpoint_path: {path}",
                trained,
                f"the task of this run is {task}",
                "Watch audit/fpr and audit/recall, or train a classifier on episodes of this task",
            )


def warn_about_episodes(trained: Tasks | None, tasks: Iterable[str]) -> None:
    """Warn if a classifier scored episodes of other tasks than those it was trained on."""
    others = other_tasks(trained, sorted(set(tasks)))
    if trained is not None and others:
        _warn("the classifier", trained, f"some of these episodes show {listed(others)}", "Compare with the labels")


def _warn(classifier: str, trained: Tasks, here: str, advice: str) -> None:
    warnings.warn(
        f"{classifier} was trained on frames of {listed(trained)}, but {here}. Its threshold and its figures, such as "
        f"the false-positive rate, were measured on frames of its own tasks, and may not hold here. {advice}",
        stacklevel=4,
    )
