"""Names tasks: the id of an environment, and the settings that change what is seen or done in it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Options of ManiSkill and Gymnasium that say where and how things are computed, not what.
NOT_IN_NAMES = ("render_mode", "render_backend", "stepping")
# Those of robots, whose addresses change from day to day.
ROBOT = "robot/"  # how their ids begin
NOT_IN_ROBOT_NAMES = ("robots", "cameras", "control_hz", "watchdog_seconds", "patience_seconds", "input", "reset")
# Values of ManiSkill's options that names leave out. A GPU draws other pictures than a CPU, so that is in the name.
DEFAULTS = {"sim_backend": "cpu"}
# Settings that change what is done, but not how a state looks; of any environment, of ManiSkill, of the built-in task.
NOT_IN_PICTURES = ("action_repeat", "control_mode", "motion_noise")


def task_name(
    env_id: str, options: Mapping[str, Any], action_repeat: int, wrappers: Sequence[tuple[str, Mapping[str, Any]]]
) -> str:
    """Return the name of a task, such as `maniskill/PickCube-v1 [action_repeat=2, control_mode=pd_ee_delta_pos]`.

    Values of null are left out. `wrappers` are names with options, the innermost first.
    """
    left_out = NOT_IN_ROBOT_NAMES if env_id.startswith(ROBOT) else NOT_IN_NAMES
    settings = dict(_dotted({name: value for name, value in options.items() if name not in left_out}))
    for name, default in DEFAULTS.items():
        if settings.get(name) == default:
            del settings[name]
    if action_repeat != 1:
        settings["action_repeat"] = action_repeat
    if wrappers:
        settings["wrappers"] = [_with_settings(name, dict(_dotted(own))) for name, own in wrappers]
    return _with_settings(env_id.rpartition(":")[2], settings)


def parts_in_pictures(task: str) -> tuple[str, ...]:
    """Return the parts of a task's name that may change how its frames look: the id, and most settings.

    Names are equal in these parts if the settings in NOT_IN_PICTURES are their only difference.
    """
    env_id, _, settings = task.partition(" [")
    parts = settings.removesuffix("]").split(", ")  # also splits lists, in all names alike
    return env_id, *(part for part in parts if part and part.partition("=")[0] not in NOT_IN_PICTURES)


def _dotted(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Return options by their dotted names, without nulls."""
    for name, value in options.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value


def _with_settings(name: str, settings: Mapping[str, Any]) -> str:
    """Return a name with settings, in one form: sorted, texts without quotes."""
    if not settings:
        return name
    texts = (f"{key}={json.dumps(value, default=_kind)}" for key, value in sorted(settings.items()))
    return f"{name} [{', '.join(texts)}]".replace('"', "")


def _kind(value: object) -> str:
    """Return what stands for a Python object, which no config file has."""
    return type(value).__name__
