"""DI-engine's pair of configs (main_config, create_config) in today's keys.

A key that is not given has DI-engine's default where that differs from ours, so that a pair means here what it means
there. A key without counterpart is dropped: silently if nothing is lost, else with a note. Keys that no table knows are
named in one note.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rewardlab.compat import Translation
from rewardlab.compat.ding_rewards import TYPES, reward_options
from rewardlab.errors import ConfigError
from rewardlab.nested import leaves, nest
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

# Block -> keys and blocks in it of which nothing is lost: what machines do, and what the environment or the algorithm
# says anyway.
_SILENT_IN = {
    "create_config": "env_manager replay_buffer collector learner evaluator env.import_names policy.import_names "
    "reward_model.import_names",
    "env": "type env_id manager replay_path act_scale use_act_scale",
    "policy": "type cuda multi_gpu on_policy action_space continuous recompute_adv command eval.env_num eval.evaluator",
    "policy.other": "commander eps replay_buffer.type",
    "policy.model": "obs_shape agent_obs_shape global_obs_shape action_shape action_space continuous collector_env_num "
    "head_hidden_size actor_head_hidden_size actor_head_layer_num actor_head_type critic_head_hidden_size "
    "critic_head_layer_num critic_head_type",
    "policy.learn": "multi_gpu learner adv_norm ppo_param_init log_space grad_clip_type learning_rate_alpha",
    "policy.collect": "env_num collector_env_num collector noise_sigma",
}
SILENT = {"seed", *(f"{block}.{key}" for block, keys in _SILENT_IN.items() for key in keys.split())}
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

Flat = dict[str, Any]  # by dotted keys


def translate_pair(
    main_config: Mapping[str, Any],
    create_config: Mapping[str, Any],
    accepted_keys: Callable[[str], Collection[str] | None],
) -> Translation:
    """The same experiment in today's keys, without a budget. The arguments are not changed.

    `accepted_keys` gives the keys that a type of reward model takes; None means any.
    """
    pair = _Pair(main_config, create_config)
    pair.translate_algorithm()
    pair.translate_environment()
    pair.translate_reward_model(accepted_keys)
    pair.translate_keys()
    pair.translate_counts()
    pair.note_the_rest()
    return Translation(nest(pair.result), {}, pair.notes)


class _Pair:
    """What is `left` of a pair to translate, and the `result` so far."""

    def __init__(self, main_config: Mapping[str, Any], create_config: Mapping[str, Any]) -> None:
        both = {**main_config, "create_config": create_config}
        self.left: Flat = {".".join(path): value for path, value in leaves(both) if not isinstance(value, Mapping)}
        self.result: Flat = {"runner.task": "train_policy", "actor.optim.schedule": "constant"}
        self.notes: list[str] = []
        self.algorithm = ""

    def translate_algorithm(self) -> None:
        found = self.left.pop("create_config.policy.type", None)
        name = str(found).removesuffix("_command")
        if name not in ALGORITHMS:
            nearest = f"; the nearest to it is {NEAREST[name]}" if name in NEAREST else ""
            raise ConfigError(f"create_config.policy.type: found {found!r}, expected {', '.join(ALGORITHMS)}{nearest}")
        self.algorithm = self.result["algorithm.name"] = ALGORITHMS[name]
        if name == "ppo_offpolicy":
            self.notes.append("policy type ppo_offpolicy is ppo: it learns from each rollout once, and keeps none")

    def translate_environment(self) -> None:
        kind = str(self.left.pop("create_config.env.type", None) or self.left.get("env.type"))
        name = self.left.get("env.env_id")
        if name is None and kind not in ENVIRONMENTS:
            problem = unknown_name("environment", kind, ENVIRONMENTS)
            raise ConfigError(f"create_config.env.type: {problem}. Of any other, give env.env_id, a Gymnasium id")
        keys = ENVIRONMENTS[kind] if name is None else ENVIRONMENT_IDS.get(name, {"id": name})
        self.result |= {f"env.train.{key}": value for key, value in keys.items()}

    def translate_reward_model(self, accepted_keys: Callable[[str], Collection[str] | None]) -> None:
        given = self._reward_block()
        found = given.pop("type", None)
        if not isinstance(found, str):
            raise ConfigError(f"create_config.reward_model.type: found {found!r}, expected the name of a reward model")
        self.result["reward.model.model_type"] = kind = TYPES.get(found, found)
        accepted = accepted_keys(kind)
        options, notes = reward_options(kind, given)
        for key, value in options.items():
            if accepted is None or key in accepted:
                self.result[f"reward.model.options.{key}"] = value
            else:
                self.left[f"reward_model.{key}"] = value  # to be named with the other unknown ones
        self.notes += notes

    def _reward_block(self) -> Flat:
        """The keys of the reward model, from wherever DI-engine's families keep them."""
        block = self._pop_block("reward_model")
        her = self._pop_block("policy.other.her")
        rnd, episodic = self._pop_block("rnd_reward_model"), self._pop_block("episodic_reward_model")
        if rnd or episodic:
            self.notes.append("rnd_reward_model and episodic_reward_model are one model, ngu; the latter's keys count")
            block = rnd | episodic | {"type": "ngu"} | block
        return {"type": "her"} | her | block if her else block

    def _pop_block(self, name: str) -> Flat:
        """A block of main_config under that of create_config, without `import_names`."""
        found: Flat = {}
        for start in (f"{name}.", f"create_config.{name}."):
            keys = [key for key in self.left if key.startswith(start) and not key.endswith(".import_names")]
            found |= {key.removeprefix(start): self.left.pop(key) for key in keys}
        return found

    def translate_keys(self) -> None:
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
            self._translate_exploration()
        if self.algorithm == "sac":
            self._translate_sac_networks()

    def _translate_exploration(self) -> None:
        # An exponential decay and a straight line over twice its length take as many random actions.
        length = self.left.pop("policy.other.eps.decay", _EPSILON_DECAY)
        straight = self.left.pop("policy.other.eps.type", "exp") == "linear"
        self.result["algorithm.dqn.epsilon_steps"] = length if straight else 2 * length
        if "algorithm.dqn.tau" in self.result:
            self.result.setdefault("algorithm.dqn.target_update_interval", 1)

    def _translate_sac_networks(self) -> None:
        size = self.left.get("policy.model.actor_head_hidden_size")
        if size is not None:
            self.result["actor.model.hidden_sizes"] = [size, size]  # the head is a layer of its own
        rate = self.left.pop("policy.learn.learning_rate_policy", None)
        if rate is not None and rate != self.result.setdefault("actor.optim.lr", rate):
            self.notes.append(f"policy.learn.learning_rate_policy = {rate!r} is ignored: that of the critics holds")

    def translate_counts(self) -> None:
        """Counts of samples and updates as steps, passes and ratios; intervals of updates as iterations."""
        environments = self.result.setdefault("env.train.num_envs", 1)
        samples = self._whole("policy.collect.n_sample", environments * _STEPS_OF_EPISODES)
        self.result[f"algorithm.{self.algorithm}.rollout_steps"] = math.ceil(samples / environments)
        updates = self._ppo_updates(samples) if self.algorithm == "ppo" else self._off_policy_updates(samples)
        for old, today, default in (
            ("policy.eval.evaluator.eval_freq", "runner.val_check_interval", _UPDATES_PER_EVALUATION),
            ("policy.learn.learner.hook.save_ckpt_after_iter", "runner.save_interval", _UPDATES_PER_CHECKPOINT),
        ):
            self.result[today] = math.ceil(self._whole(old, default) / updates)
        self.result = DEFAULTS[self.algorithm] | self.result

    def _ppo_updates(self, samples: int) -> int:
        """Updates in an iteration, after setting the passes over a rollout that they come from."""
        batch = self.result.get("actor.global_batch_size", _BATCH_SIZE)
        updates = self.left.pop("policy.learn.update_per_collect", None)
        default = DEFAULTS["ppo"]["algorithm.ppo.update_epochs"]
        wanted = default if updates is None else max(1, round(updates * batch / samples))
        passes = self.result.setdefault("algorithm.ppo.update_epochs", wanted)
        return int(passes * math.ceil(samples / batch))

    def _off_policy_updates(self, samples: int) -> int:
        """Updates in an iteration, after setting their ratio to environment steps."""
        updates = self._whole("policy.learn.update_per_collect", _UPDATES_PER_COLLECT[self.algorithm])
        self.result[f"algorithm.{self.algorithm}.utd_ratio"] = updates / samples
        return updates

    def _whole(self, key: str, default: int) -> int:
        value = self.left.pop(key, None)
        value = default if value is None else value
        if type(value) is not int or value < 1:
            raise ConfigError(f"{key}: found {value!r}, expected a positive whole number")
        return value

    def note_the_rest(self) -> None:
        """Note what is lost, and which keys no table knows."""
        others = {key for keys in KEYS_OF.values() for key in keys}
        unknown = []
        for key, value in self.left.items():
            if key in NEUTRAL:
                neutral, here = NEUTRAL[key]
                if value not in (neutral, None):
                    self.notes.append(f"{key} = {value!r} is ignored: {here}")
            elif key in others:
                self.notes.append(f"{key} is ignored: {self.algorithm} has no use for it")
            elif not _is_silent(key):
                unknown.append(key)
        if unknown:
            self.notes.append(f"keys of the DI-engine config that are not known here are ignored: {', '.join(unknown)}")


def _value(today: str, value: Any) -> Any:
    if today.endswith("normalize_reward"):
        return bool(value)  # DI-engine also has the names of several ways to do it
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _is_silent(key: str) -> bool:
    """Whether nothing is lost by dropping a key, or a block around it."""
    parts = key.split(".")
    return any(".".join(parts[:n]) in SILENT for n in range(1, len(parts) + 1))
