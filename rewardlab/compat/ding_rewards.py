"""The keys of a reward model in DI-engine's configs, as arguments of the reward models here."""

from typing import Any

from rewardlab.compat import read_tables

_TABLES = read_tables("ding_configs.yaml")["reward_model"]  # says what each table means
TYPES: dict[str, str] = _TABLES["types"]
KEYS: dict[str, dict[str, str]] = _TABLES["keys"]
SILENT = set(_TABLES["silent"].split())
DROPPED = {key: row["why"] for row in _TABLES["dropped"] for key in row["keys"]}
_LAYERS = {"guided_cost": 2, "red": 2}  # hidden layers that `hidden_size` stands for; 1 for all other types
_RESCALE, _SNIPPETS = 0.01, 6_000  # DI-engine's defaults

Options = dict[str, Any]


def reward_options(kind: str, given: Options) -> tuple[Options, list[str]]:
    """Returns the arguments of a reward model, and notes on the keys that have no effect here."""
    options = {KEYS.get(kind, {}).get(key, key): value for key, value in given.items()}
    if size := options.pop("hidden_size", None):
        options.setdefault("hidden_size_list", [size] * _LAYERS.get(kind, 1))
    if (sizes := options.get("hidden_size_list")) and len(sizes) > 1 and sizes[-1] == 1:
        options["hidden_size_list"] = list(sizes[:-1])  # the last one is the output
    if any(key.startswith("intrinsic_reward_") for key in options):
        _set_weight(options)
    if kind == "icm" and "reverse_scale" in options:
        # scale * inverse + forward is (1 - beta) * inverse + beta * forward, up to a factor.
        options["forward_loss_weight"] = 1 / (1 + options.pop("reverse_scale"))
    if kind in ("trex", "drex"):
        _set_updates(options)
    if kind in ("gail", "guided_cost") and "data_path" in options:
        options.setdefault("expert_data_path", f"{options.pop('data_path')}/expert_data.pkl")
    lost: dict[str, list[str]] = {}
    for key in options.keys() & DROPPED.keys():
        lost.setdefault(DROPPED[key], []).append(f"reward_model.{key}")
    notes = [f"{', '.join(sorted(keys))} ignored: {why}" for why, keys in sorted(lost.items())]
    dropped = SILENT | DROPPED.keys()
    return {key: value for key, value in options.items() if key not in dropped}, notes


def _set_weight(options: Options) -> None:
    """DI-engine makes a weight of None from the rescale; a reward that replaces the environment's has no weight."""
    rescale, weight = options.pop("intrinsic_reward_rescale", _RESCALE), options.get("intrinsic_reward_weight")
    replaces = options.get("intrinsic_reward_type") == "assign"
    options["intrinsic_reward_weight"] = 1.0 if replaces else rescale if weight is None else weight


def _set_updates(options: Options) -> None:
    """DI-engine makes `update_per_collect` passes over its snippets, with an update at each pair of them."""
    snippets = options.pop("num_snippets", _SNIPPETS)
    if "update_per_collect" in options:
        options["update_per_collect"] *= snippets
        options["batch_size"] = 1
