"""DI-engine's pair of configs (document 004) in today's keys. No other module knows the names of DI-engine's keys.

What is not given has DI-engine's default where that differs from ours, so that a pair means here what it meant there.
What has no counterpart is dropped: in silence if nothing is lost, with a note if something is. Keys that no table knows
are named in one note, never passed over.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from rewardlab.compat import Translation
from rewardlab.errors import ConfigError
from rewardlab.registry import unknown_name

# create_config.policy.type -> algorithm.name
ALGORITHMS = {"ppo": "ppo", "ppo_onpolicy": "ppo", "ppo_offpolicy": "ppo", "dqn": "dqn", "sac": "sac"}
# Types that are not here -> the nearest that is.
NEAREST = {
    **dict.fromkeys(("a2c", "acer", "impala", "pg", "ppg"), "ppo"),
    **dict.fromkeys(("c51", "discrete_sac", "sac_discrete", "iqn", "qrdqn", "rainbow", "r2d2", "ngu", "sqn"), "dqn"),
    **dict.fromkeys(("ddpg", "td3", "d4pg"), "sac"),
}

_CARTPOLE = {"id": "CartPole-v1", "max_episode_steps": 200}  # is CartPole-v0, which Gymnasium has retired
_LANDER = {"id": "LunarLander-v3"}

# create_config.env.type -> keys of env.train. env.env_id is stronger.
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "acrobot": {"id": "Acrobot-v1"},
    "cartpole": _CARTPOLE,
    "lunarlander": _LANDER,
    "mountain_car": {"id": "MountainCar-v0"},
    "pendulum": {"id": "Pendulum-v1"},
}
# Ids of Gym that Gymnasium does not have -> keys of env.train.
ENVIRONMENT_IDS: dict[str, dict[str, Any]] = {
    "CartPole-v0": _CARTPOLE,
    "LunarLander-v2": _LANDER,
    "LunarLanderContinuous-v2": {**_LANDER, "options": {"continuous": True}},
    "Pendulum-v0": {"id": "Pendulum-v1"},
}

KEYS: dict[str, str] = {
    "exp_name": "runner.logger.experiment_name",
    "env.collector_env_num": "env.train.num_envs",
    "env.evaluator_env_num": "env.eval.num_envs",
    "env.n_evaluator_episode": "env.eval.num_envs",  # the stronger one: an evaluation is an episode in each
    "env.stop_value": "runner.stop_at_return",
    "policy.discount_factor": "algorithm.gamma",
    "policy.learn.discount_factor": "algorithm.gamma",
    "policy.collect.discount_factor": "algorithm.gamma",
    "policy.learn.batch_size": "actor.global_batch_size",
    "policy.learn.learning_rate": "actor.optim.lr",
    "policy.learn.grad_clip_value": "actor.optim.max_grad_norm",
    "policy.model.encoder_hidden_size_list": "actor.model.hidden_sizes",
}

_REPLAY = "policy.other.replay_buffer.replay_buffer_size"

# Of one algorithm; given to another, they are dropped with a note.
KEYS_OF: dict[str, dict[str, str]] = {
    "ppo": {
        "policy.learn.epoch_per_collect": "algorithm.ppo.update_epochs",
        "policy.learn.entropy_weight": "algorithm.ppo.entropy_coef",
        "policy.learn.clip_ratio": "algorithm.ppo.clip_ratio",
        "policy.learn.value_weight": "algorithm.ppo.value_coef",
        "policy.learn.value_norm": "algorithm.ppo.normalize_reward",
        "policy.collect.gae_lambda": "algorithm.ppo.gae_lambda",
    },
    "dqn": {
        "policy.random_collect_size": "algorithm.dqn.learning_starts",
        "policy.learn.target_update_freq": "algorithm.dqn.target_update_interval",
        "policy.learn.target_theta": "algorithm.dqn.tau",
        "policy.other.eps.start": "algorithm.dqn.epsilon_start",
        "policy.other.eps.end": "algorithm.dqn.epsilon_end",
        _REPLAY: "algorithm.dqn.replay_size",
    },
    "sac": {
        "policy.random_collect_size": "algorithm.sac.learning_starts",
        "policy.learn.learning_rate_q": "actor.optim.lr",
        "policy.learn.target_theta": "algorithm.sac.tau",
        "policy.learn.alpha": "algorithm.sac.init_alpha",
        _REPLAY: "algorithm.sac.replay_size",
    },
}

# DI-engine's defaults, where they are not ours.
DEFAULTS: dict[str, dict[str, Any]] = {
    "ppo": {
        "algorithm.ppo.update_epochs": 10,
        "algorithm.ppo.normalize_reward": True,
        "actor.optim.lr": 3e-4,
        "actor.optim.max_grad_norm": 0.5,
        "actor.model.hidden_sizes": [128, 128, 64],
    },
    "dqn": {
        "algorithm.gamma": 0.97,
        "algorithm.dqn.learning_starts": 0,
        "algorithm.dqn.target_update_interval": 100,
        "algorithm.dqn.epsilon_start": 0.95,
        "algorithm.dqn.epsilon_end": 0.1,
        "algorithm.dqn.replay_size": 10_000,
        "actor.optim.lr": 1e-3,
        "actor.model.hidden_sizes": [128, 128, 64],
    },
    "sac": {
        "algorithm.sac.learning_starts": 10_000,
        "algorithm.sac.init_alpha": 0.2,
        "actor.global_batch_size": 256,
        "actor.optim.lr": 3e-4,
        "actor.model.hidden_sizes": [64, 64],
    },
}
_BATCH_SIZE = 64
_UPDATES_PER_COLLECT = {"dqn": 3, "sac": 1}
_UPDATES_PER_EVALUATION, _UPDATES_PER_CHECKPOINT = 1_000, 10_000
_EPSILON_DECAY = 10_000
_STEPS_OF_EPISODES = 32  # of each environment, where DI-engine counts episodes

# Keys and blocks of which nothing is lost: what machines do, and what the environment or the algorithm says anyway.
SILENT = {
    "seed",
    *(f"create_config.{name}" for name in ("env_manager", "replay_buffer", "collector", "learner", "evaluator")),
    *(f"create_config.{name}.import_names" for name in ("env", "policy", "reward_model")),
    *(f"env.{name}" for name in ("type", "env_id", "manager", "replay_path", "act_scale", "use_act_scale")),
    *(f"policy.{name}" for name in ("type", "cuda", "multi_gpu", "on_policy", "action_space", "continuous")),
    *(f"policy.{name}" for name in ("recompute_adv", "command", "eval.env_num", "eval.evaluator")),
    *(f"policy.other.{name}" for name in ("commander", "eps", "replay_buffer.type")),
    *(f"policy.model.{name}" for name in ("obs_shape", "agent_obs_shape", "global_obs_shape", "action_shape")),
    *(f"policy.model.{name}" for name in ("action_space", "continuous", "collector_env_num", "head_hidden_size")),
    *(f"policy.model.actor_head_{name}" for name in ("hidden_size", "layer_num", "type")),
    *(f"policy.model.critic_head_{name}" for name in ("hidden_size", "layer_num", "type")),
    *(f"policy.learn.{name}" for name in ("multi_gpu", "learner", "adv_norm", "ppo_param_init", "log_space")),
    *(f"policy.learn.{name}" for name in ("grad_clip_type", "learning_rate_alpha")),
    *(f"policy.collect.{name}" for name in ("env_num", "collector_env_num", "collector", "noise_sigma")),
}
# Key -> (the value that says what is done here anyway, what is done here).
NEUTRAL: dict[str, tuple[Any, str]] = {
    "policy.nstep": (1, "targets look one step ahead"),
    "policy.nstep_return": (False, "targets look one step ahead"),
    "policy.priority": (False, "transitions are drawn uniformly"),
    "policy.priority_IS_weight": (False, "transitions are drawn uniformly"),
    "policy.multi_agent": (False, "there is one agent"),
    "policy.load_path": ("", "a run is continued by runner.resume_dir"),
    "policy.model.dueling": (False, "the Q-network has one head"),
    "policy.model.twin_critic": (True, "algorithm.sac.num_critics is 2"),
    "policy.learn.ignore_done": (False, "truncated episodes are bootstrapped, terminated ones are not"),
    "policy.learn.auto_alpha": (True, "the temperature is tuned, from algorithm.sac.init_alpha on"),
    "policy.learn.value_network": (False, "there are critics of actions alone"),
    "policy.collect.unroll_len": (1, "policies have no memory"),
    "policy.collect.n_episode": (None, "a rollout is counted in steps: give policy.collect.n_sample"),
    "policy.collect.demonstration_info_path": (None, "demonstrations are given as expert_data"),
}

# reward_model.type -> reward.model.model_type
REWARD_TYPES = {"rnd-ngu": "ngu", "episodic": "ngu"}
# Of a type: DI-engine's key -> the argument here. Keys with the same name need no row.
REWARD_KEYS: dict[str, dict[str, str]] = {"pwil": {"alpha": "reward_scale", "beta": "bandwidth"}}
# What the environment's spaces say, or only DI-engine's logs need.
REWARD_SILENT = {
    *(
        "type",
        "exp_name",
        "env_id",
        "algo_for_model",
        "collect_count",
        "log_every_n_train",
        "store_model_every_n_train",
    ),
    *("obs_shape", "action_shape", "input_size", "s_size", "a_size", "discrete_action", "continuous"),
}
_GIVE_DATA = "demonstrations are made beforehand and given as expert_data or reward_model.expert_data_path"
_SCALE = "novelty is divided by its running root mean square; the environment's reward is left alone"
REWARD_DROPPED: dict[str, str] = {
    **dict.fromkeys(("expert_model_path", "expert_load_path", "offline_data_path", "data_path"), _GIVE_DATA),
    **dict.fromkeys(("checkpoint_min", "checkpoint_max", "checkpoint_step", "num_trajs"), _GIVE_DATA),
    **dict.fromkeys(("eps_list", "num_trajs_per_bin", "bc_iterations", "bc_path"), "see collect_noise_rollouts"),
    **dict.fromkeys(("obs_norm_clamp_min", "obs_norm_clamp_max"), "observations are clipped at 5 deviations"),
    **dict.fromkeys(("extrinsic_reward_norm", "extrinsic_reward_norm_max"), _SCALE),
    **dict.fromkeys(("episode_size", "sample_per_episode"), "her_replay_k says how many goals are tried"),
    "last_nonzero_reward_rescale": _SCALE,
    "last_nonzero_reward_weight": _SCALE,
    "load_path": "a trained reward model is given as reward.model.checkpoint_path",
    "nstep": "targets look one step ahead",
    "reward_model_path": "the reward model is saved in the checkpoints of the run",
    "sample_size": "all transitions of the expert are used",
    "target_new_data_count": "an iteration collects policy.collect.n_sample transitions",
}
# Hidden layers that `hidden_size` stands for.
_LAYERS = {"guided_cost": 2, "red": 2}
_RESCALE = 0.01
_SNIPPETS = 6_000

Flat = dict[str, Any]


def translate_pair(
    main_config: Mapping[str, Any],
    create_config: Mapping[str, Any],
    arguments_of: Callable[[str], Collection[str] | None],
) -> Translation:
    """The same experiment in today's keys, without a budget. The arguments are not changed.

    `arguments_of` says which keys a reward model takes; None means any.
    """
    pair = _Pair(main_config, create_config)
    pair.take_algorithm()
    pair.take_environment()
    pair.take_reward_model(arguments_of)
    pair.take_keys()
    pair.take_pace()
    pair.take_rest()
    return Translation(_nested(pair.result), {}, pair.notes)


class _Pair:
    """What is `left` of a pair to translate, and the `result` so far."""

    def __init__(self, main_config: Mapping[str, Any], create_config: Mapping[str, Any]) -> None:
        self.left: Flat = dict(_leaves(main_config)) | dict(_leaves(create_config, "create_config."))
        self.result: Flat = {"runner.task": "train_policy", "actor.optim.schedule": "constant"}
        self.notes: list[str] = []
        self.algorithm = ""

    def take_algorithm(self) -> None:
        found = self.left.pop("create_config.policy.type", None)
        name = str(found).removesuffix("_command")
        if name not in ALGORITHMS:
            nearest = f"; the nearest to it is {NEAREST[name]}" if name in NEAREST else ""
            raise ConfigError(f"create_config.policy.type: found {found!r}, expected {', '.join(ALGORITHMS)}{nearest}")
        self.algorithm = ALGORITHMS[name]
        self.result["algorithm.name"] = self.algorithm
        if name == "ppo_offpolicy":
            self.notes.append("policy type ppo_offpolicy is ppo: it learns from each rollout once, and keeps none")

    def take_environment(self) -> None:
        kind = self.left.pop("create_config.env.type", None) or self.left.get("env.type")
        name = self.left.get("env.env_id")
        if name is not None:
            keys = ENVIRONMENT_IDS.get(name, {"id": name})
        elif kind in ENVIRONMENTS:
            keys = ENVIRONMENTS[kind]
        else:
            problem = unknown_name("environment", str(kind), ENVIRONMENTS)
            raise ConfigError(f"create_config.env.type: {problem}. Of any other, give env.env_id, a Gymnasium id")
        self.result |= {f"env.train.{key}": value for key, value in keys.items()}

    def take_reward_model(self, arguments_of: Callable[[str], Collection[str] | None]) -> None:
        given = self._reward_block()
        found = given.pop("type", None)
        if not isinstance(found, str):
            raise ConfigError(f"create_config.reward_model.type: found {found!r}, expected the name of a reward model")
        kind = REWARD_TYPES.get(found, found)
        accepted = arguments_of(kind)
        options, notes = _reward_options(kind, given)
        for key, value in options.items():
            if accepted is None or key in accepted:
                self.result[f"reward.model.options.{key}"] = value
            else:
                self.left[f"reward_model.{key}"] = value  # to be named with the other unknown ones
        self.result["reward.model.model_type"] = kind
        self.notes += notes

    def _reward_block(self) -> Flat:
        """The keys of the reward model, from wherever DI-engine's families keep them."""
        block = self._pop_block("reward_model.") | self._pop_block("create_config.reward_model.")
        her = self._pop_block("policy.other.her.")
        life_long, episodic = (
            self._pop_block(f"{name}_reward_model.") | self._pop_block(f"create_config.{name}_reward_model.")
            for name in ("rnd", "episodic")
        )
        if life_long or episodic:
            self.notes.append("rnd_reward_model and episodic_reward_model are one model, ngu; the latter's keys count")
            block = life_long | episodic | {"type": "ngu"} | block
        return {"type": "her"} | her | block if her else block

    def _pop_block(self, start: str) -> Flat:
        keys = [key for key in self.left if key.startswith(start) and not key.endswith(".import_names")]
        return {key.removeprefix(start): self.left.pop(key) for key in keys}

    def take_keys(self) -> None:
        written: dict[str, str] = {}  # today's key -> DI-engine's
        for old, today in (KEYS | KEYS_OF[self.algorithm]).items():
            if old not in self.left:
                continue
            value = _value(today, self.left.pop(old))
            if today == "algorithm.gamma" and self.result.get(today, value) != value:
                raise ConfigError(
                    f"{written[today]} = {self.result[today]!r} and {old} = {value!r} set the same: keep one of them"
                )
            written[today] = old
            self.result[today] = value
        if math.isinf(self.result.get("runner.stop_at_return") or 0.0):
            del self.result["runner.stop_at_return"]
        if self.algorithm == "dqn":
            self._take_exploration()
        if self.algorithm == "sac":
            self._take_actor()

    def _take_exploration(self) -> None:
        # An exponential decay and a straight line over twice its length take as many random actions.
        length = self.left.pop("policy.other.eps.decay", _EPSILON_DECAY)
        straight = self.left.pop("policy.other.eps.type", "exp") == "linear"
        self.result["algorithm.dqn.epsilon_steps"] = length if straight else 2 * length
        if "algorithm.dqn.tau" in self.result:
            self.result.setdefault("algorithm.dqn.target_update_interval", 1)

    def _take_actor(self) -> None:
        size = self.left.get("policy.model.actor_head_hidden_size")
        if size is not None:
            self.result["actor.model.hidden_sizes"] = [size, size]  # the head is a layer of its own
        rate, critics_rate = self.left.pop("policy.learn.learning_rate_policy", None), self.result.get("actor.optim.lr")
        if critics_rate is None and rate is not None:
            self.result["actor.optim.lr"] = rate
        elif rate not in (None, critics_rate):
            self.notes.append(f"policy.learn.learning_rate_policy = {rate!r} is ignored: that of the critics holds")

    def take_pace(self) -> None:
        """Counts of samples and updates as steps, passes and ratios; intervals of updates as iterations."""
        environments = self.result.setdefault("env.train.num_envs", 1)
        samples = self._whole("policy.collect.n_sample", environments * _STEPS_OF_EPISODES)
        steps = math.ceil(samples / environments)
        self.result[f"algorithm.{self.algorithm}.rollout_steps"] = steps
        updates = self._take_passes(samples) if self.algorithm == "ppo" else self._take_ratio(samples)
        for old, today, default in (
            ("policy.eval.evaluator.eval_freq", "runner.val_check_interval", _UPDATES_PER_EVALUATION),
            ("policy.learn.learner.hook.save_ckpt_after_iter", "runner.save_interval", _UPDATES_PER_CHECKPOINT),
        ):
            self.result[today] = math.ceil(self._whole(old, default) / updates)
        self.result = DEFAULTS[self.algorithm] | self.result

    def _take_passes(self, samples: int) -> int:
        batch = self.result.get("actor.global_batch_size", _BATCH_SIZE)
        updates = self.left.pop("policy.learn.update_per_collect", None)
        if updates is not None and "algorithm.ppo.update_epochs" not in self.result:
            self.result["algorithm.ppo.update_epochs"] = max(1, round(updates * batch / samples))
        passes = self.result.get("algorithm.ppo.update_epochs", DEFAULTS["ppo"]["algorithm.ppo.update_epochs"])
        return int(passes * math.ceil(samples / batch))

    def _take_ratio(self, samples: int) -> int:
        updates = self._whole("policy.learn.update_per_collect", _UPDATES_PER_COLLECT[self.algorithm])
        self.result[f"algorithm.{self.algorithm}.utd_ratio"] = updates / samples
        return updates

    def _whole(self, key: str, default: int) -> int:
        value = self.left.pop(key, None)
        value = default if value is None else value
        if type(value) is not int or value < 1:
            raise ConfigError(f"{key}: found {value!r}, expected a positive whole number")
        return value

    def take_rest(self) -> None:
        """Say what is lost, and which keys nobody knows."""
        others = {key for keys in KEYS_OF.values() for key in keys}
        unknown = []
        for key, value in self.left.items():
            if key in NEUTRAL:
                neutral, here = NEUTRAL[key]
                if value not in (neutral, None):
                    self.notes.append(f"{key} = {value!r} is ignored: {here}")
            elif key in others:
                self.notes.append(f"{key} is ignored: {self.algorithm} has no use for it")
            elif not _covered(key):
                unknown.append(key)
        if unknown:
            self.notes.append(f"keys of the DI-engine config that are not known here are ignored: {', '.join(unknown)}")


def _reward_options(kind: str, given: Flat) -> tuple[Flat, list[str]]:
    """Arguments of a reward model, and what is lost."""
    options = {REWARD_KEYS.get(kind, {}).get(key, key): value for key, value in given.items()}
    if "hidden_size" in options:
        options.setdefault("hidden_size_list", [options["hidden_size"]] * _LAYERS.get(kind, 1))
        del options["hidden_size"]
    if (sizes := options.get("hidden_size_list")) and len(sizes) > 1 and sizes[-1] == 1:
        options["hidden_size_list"] = list(sizes[:-1])  # the last one is the output
    if any(key.startswith("intrinsic_reward_") for key in options):
        _take_weight(options)
    if kind == "icm" and "reverse_scale" in options:
        # scale * inverse + forward is (1 - beta) * inverse + beta * forward, up to a factor.
        options["forward_loss_weight"] = 1 / (1 + options.pop("reverse_scale"))
    if kind in ("trex", "drex"):
        _take_epochs(options)
    if kind in ("gail", "guided_cost") and "data_path" in options:
        options.setdefault("expert_data_path", f"{options.pop('data_path')}/expert_data.pkl")
    lost: dict[str, list[str]] = {}
    for key in options.keys() & REWARD_DROPPED.keys():
        lost.setdefault(REWARD_DROPPED[key], []).append(f"reward_model.{key}")
    notes = [f"{', '.join(sorted(keys))} ignored: {why}" for why, keys in sorted(lost.items())]
    dropped = REWARD_SILENT | REWARD_DROPPED.keys()
    return {key: value for key, value in options.items() if key not in dropped}, notes


def _take_weight(options: Flat) -> None:
    """A weight of None is made from the rescale in DI-engine; a reward that takes the other's place has none."""
    rescale, weight = options.pop("intrinsic_reward_rescale", _RESCALE), options.get("intrinsic_reward_weight")
    replaces = options.get("intrinsic_reward_type") == "assign"
    options["intrinsic_reward_weight"] = 1.0 if replaces else rescale if weight is None else weight


def _take_epochs(options: Flat) -> None:
    """DI-engine passes `update_per_collect` times over its snippets and updates at each pair of them."""
    snippets = options.pop("num_snippets", _SNIPPETS)
    if "update_per_collect" in options:
        options["update_per_collect"] *= snippets
        options["batch_size"] = 1


def _value(today: str, value: Any) -> Any:
    if today.endswith("normalize_reward"):
        return bool(value)  # DI-engine also has the names of several ways to do it
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _covered(key: str) -> bool:
    """Whether a key, or a block around it, is one of which nothing is lost."""
    parts = key.split(".")
    return any(".".join(parts[:n]) in SILENT for n in range(1, len(parts) + 1))


def _leaves(mapping: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{start}{key}.")
        else:
            yield f"{start}{key}", value


def _nested(flat: Flat) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *blocks, last = key.split(".")
        place = nested
        for block in blocks:
            place = place.setdefault(block, {})
        place[last] = value
    return nested
