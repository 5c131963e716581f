"""The keys of a reward model in DI-engine's configs, as arguments of the reward models here."""

from typing import Any

# reward_model.type -> reward.model.model_type
TYPES = {"rnd-ngu": "ngu", "episodic": "ngu"}
# Type -> {DI-engine's key: the argument here}. Keys of the same name need no row.
KEYS: dict[str, dict[str, str]] = {"pwil": {"alpha": "reward_scale", "beta": "bandwidth"}}
# Keys that the spaces of the environment replace, or that only DI-engine's logs need.
SILENT = {
    *("type", "exp_name", "env_id", "algo_for_model", "collect_count", "log_every_n_train"),
    *("store_model_every_n_train", "obs_shape", "action_shape", "input_size", "s_size", "a_size"),
    *("discrete_action", "continuous"),
}
_DATA = "demonstrations are made beforehand and given as expert_data or reward_model.expert_data_path"
_SCALE = "novelty is divided by its running root mean square; the environment's reward is left alone"
# Key -> why it is ignored.
DROPPED: dict[str, str] = {
    **dict.fromkeys(("expert_model_path", "expert_load_path", "offline_data_path", "data_path"), _DATA),
    **dict.fromkeys(("checkpoint_min", "checkpoint_max", "checkpoint_step", "num_trajs"), _DATA),
    **dict.fromkeys(("eps_list", "num_trajs_per_bin", "bc_iterations", "bc_path"), "see collect_noise_rollouts"),
    **dict.fromkeys(("obs_norm_clamp_min", "obs_norm_clamp_max"), "observations are clipped at 5 deviations"),
    **dict.fromkeys(("extrinsic_reward_norm", "extrinsic_reward_norm_max"), _SCALE),
    **dict.fromkeys(("last_nonzero_reward_rescale", "last_nonzero_reward_weight"), _SCALE),
    **dict.fromkeys(("episode_size", "sample_per_episode"), "her_replay_k says how many goals are tried"),
    "load_path": "a trained reward model is given as reward.model.checkpoint_path",
    "nstep": "targets look one step ahead",
    "reward_model_path": "the reward model is saved in the checkpoints of the run",
    "sample_size": "all transitions of the expert are used",
    "target_new_data_count": "an iteration collects policy.collect.n_sample transitions",
}
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
