"""What the infos of a step say: when the environment resets, and whether the frame that followed shows a success.

An environment that resets in the step that ends an episode describes the first frame of the next one in its infos, and
the true last frame in their `final_info`. All code that labels frames uses this module, so that the two are never
confused; their pictures come from `camera_frames.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from rewardlab.errors import DataError
from rewardlab.keys import EXECUTED_ACTION, SUCCESS_KEYS
from rewardlab.observations import Array, to_numpy

Bools: TypeAlias = npt.NDArray[np.bool_]
Infos: TypeAlias = Mapping[str, Any]
Locate: TypeAlias = Callable[[int], str]  # row of a batch -> the environment and the step, in words


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """Return when the environment resets; one that does not say does so at the next step, Gymnasium's default."""
    mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    if not isinstance(mode, AutoresetMode):
        raise DataError(f"metadata['autoreset_mode'] is {mode!r}; expected a gymnasium AutoresetMode")
    return mode


def check_autoreset(mode: AutoresetMode, infos: Infos) -> None:
    """Raise if a step's infos show that the environment resets in the same step without saying so."""
    if mode != AutoresetMode.SAME_STEP and infos.get("final_obs") is not None:
        raise DataError(
            "infos has 'final_obs', so the environment resets in the same step, but its metadata do not say so: "
            "set metadata['autoreset_mode'] to AutoresetMode.SAME_STEP, or last frames would be lost"
        )


def success_of(infos: Infos, num_envs: int, locate: Locate = "environment {}".format) -> Bools:
    """Return whether the frame beside `infos` shows a success; False where the environment does not say."""
    return flags_of(infos, SUCCESS_KEYS, num_envs, locate)


def known_success(infos: Infos, num_envs: int) -> Bools:
    """Return where the environment says whether the frame beside `infos` shows a success."""
    return np.logical_or.reduce([_known(infos, key, num_envs) for key in SUCCESS_KEYS])


def says_success(infos: Infos) -> bool:
    """Return whether the environment reports success at all."""
    return any(reports(infos, key) for key in SUCCESS_KEYS)


def unreported(infos: Infos) -> str:
    """Return the words for an environment that does not report success: what was looked for, and what there is."""
    found = [key for key in {**infos, **(infos.get("final_info") or {})} if not key.lstrip("_").startswith("final_")]
    names = ", ".join(sorted(key for key in found if not _is_mask(key, infos, infos.get("final_info") or {})))
    others = f"but {names}" if names else "and nothing else"
    return f"the environment's infos have none of {', '.join(SUCCESS_KEYS)}, {others}"


def reports(infos: Infos, key: str) -> bool:
    """Return whether an environment says this of the step, or of an episode that ended in it."""
    return key in infos or key in (infos.get("final_info") or {})


def following_success(infos: Infos, ended: Bools, locate: Locate = "environment {}".format) -> Bools:
    """Return whether the frame that followed each action shows a success; see `CameraFrames.following`."""
    beside = success_of(infos, len(ended), locate)
    if infos.get("final_obs") is None:
        return beside
    return np.where(ended, success_of(final_info(infos), len(ended), locate), beside)


def executed_actions(actions: Array, infos: Infos, ended: Bools) -> Array:
    """Return what the environments really did: a robot's limits, or a person, may have changed the action."""
    executed = actions
    places = ((infos, ~ended), (infos.get("final_info") or {}, ended)) if "final_info" in infos else ((infos, None),)
    for place, rows in places:
        if EXECUTED_ACTION in place:
            known = np.broadcast_to(to_numpy(place.get(f"_{EXECUTED_ACTION}", True)).astype(bool), len(actions))
            known = known if rows is None else known & rows
            mask = known.reshape(-1, *[1] * (actions.ndim - 1))
            executed = np.where(mask, to_numpy(place[EXECUTED_ACTION]), executed).astype(actions.dtype)
    return executed


def flags_of_step(infos: Infos, key: str, ended: Bools) -> Bools:
    """Return a flag of the step just made: where an episode ended, that of its last frame."""
    beside = flags_of(infos, (key,), len(ended))
    last = infos.get("final_info")
    return beside if not last else np.where(ended, flags_of(last, (key,), len(ended)), beside)


def final_info(infos: Infos) -> Infos:
    """Return the infos of the true last frames; the outer ones already describe the frame after the reset."""
    final = infos.get("final_info")
    if final is not None:
        return final
    if any(key in infos for key in SUCCESS_KEYS):
        raise DataError(
            "the environment resets in the same step and reports success, but gives no infos['final_info']: "
            "the last frame of an episode would get the label of the next one's first"
        )
    return {}


def merge_infos(infos: Any, others: Any, rows: Bools) -> Any:
    """Return infos in which some rows are those of others; where a row has no such fact, its mask (`_key`) says so."""
    if infos is None or others is None:
        return others if infos is None else infos
    merged: dict[str, Any] = {}
    for key in (key for key in {**infos, **others} if not _is_mask(key, infos, others)):
        first, second = infos.get(key), others.get(key)
        if isinstance(second if first is None else first, Mapping):
            merged[key] = merge_infos(first, second, rows)
            continue
        merged[key] = _merged_rows(first, second, rows)
        known = np.where(rows, _known(others, key, len(rows)), _known(infos, key, len(rows)))
        if not known.all() or f"_{key}" in infos:
            merged[f"_{key}"] = known
    return merged


def _is_mask(key: str, *infos: Infos) -> bool:
    return key.startswith("_") and any(key[1:] in one for one in infos)


def _known(infos: Infos, key: str, count: int) -> Bools:
    """Return Gymnasium's mask of a fact: in which environments it is known."""
    return np.broadcast_to(to_numpy(infos.get(f"_{key}", key in infos)).astype(bool), count)


def _merged_rows(first: Any, second: Any, rows: Bools) -> Any:
    one, other = (None if value is None else to_numpy(value) for value in (first, second))
    if one is None or other is None or one.shape[:1] != rows.shape or other.shape[:1] != rows.shape:
        return second if first is None else first
    if one.shape != other.shape:
        return first
    merged = one.astype(np.result_type(one, other)) if one.dtype != other.dtype else one.copy()
    merged[rows] = other[rows]
    return merged


def flags_of(infos: Infos, keys: Sequence[str], num_envs: int, locate: Locate = "environment {}".format) -> Bools:
    """Return the flag of each environment under the first key there is; False where Gymnasium's mask excludes it.

    Flags are booleans or finite numbers, of which those from 0.5 on are true, as in stored episodes. Anything else is
    an error; `locate` says in words which environment and step is meant.
    """
    for key in keys:
        if key in infos:
            values = to_numpy(infos[key])
            if values.size != num_envs:
                raise DataError(
                    f"{locate(0)}: info['{key}'] has shape {list(values.shape)}; expected one value for each of the "
                    f"{num_envs} environments"
                )
            known = np.broadcast_to(to_numpy(infos.get(f"_{key}", True)).astype(bool), num_envs)
            return _as_flags(values.reshape(num_envs), known, key, locate)
    return np.zeros(num_envs, dtype=bool)


def _as_flags(values: Array, known: Bools, key: str, locate: Locate) -> Bools:
    if values.dtype == bool:
        return np.asarray(values & known)
    flags = np.zeros(len(values), dtype=bool)
    for row in np.flatnonzero(known):
        value = to_numpy(values[row])
        if value.dtype.kind not in "biuf" or value.size != 1 or not np.isfinite(value).all():
            found = repr(values[row])[:60]
            raise DataError(f"{locate(int(row))}: info['{key}'] is {found}; expected true, false or a finite number")
        flags[row] = value.item() >= 0.5
    return flags
