"""DI-engine's pair of configs (main_config, create_config) in today's keys.

A key that is not given has DI-engine's default where that differs from ours, so that a pair means here what it means
there. A key without counterpart is dropped: silently if nothing is lost, else with a note. Keys that no table knows are
named in one note.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rewardlab.compat import Translation, read_tables
from rewardlab.compat.ding_rewards import TYPES, reward_options
from rewardlab.errors import ConfigError
from rewardlab.nested import leaves, nest
from rewardlab.registry import unknown_name

_TABLES = read_tables("ding_configs.yaml")  # says what each table means
ALGORITHMS: dict[str, str] = _TABLES["algorithms"]
ON_POLICY_HERE: dict[str, str] = _TABLES["on_policy_here"]
MISSING: dict[str, str] = _TABLES["missing"]
NEAREST = {name: ours for ours, names in _TABLES["nearest"].items() for name in names}
ENVIRONMENTS: dict[str, dict[str, Any]] = _TABLES["environments"]
ENVIRONMENT_IDS: dict[str, dict[str, Any]] = _TABLES["environment_ids"]
KEYS: dict[str, str] = _TABLES["keys"]
KEYS_OF: dict[str, dict[str, str]] = _TABLES["keys_of"]
DEFAULTS: dict[str, dict[str, Any]] = _TABLES["defaults"]
SILENT = {"seed", *(f"{block}.{key}" for block, keys in _TABLES["silent"].items() for key in keys.split())}
NEUTRAL: dict[str, list[Any]] = _TABLES["neutral"]
_BATCH_SIZE = 64
_UPDATES_PER_COLLECT = {"dqn": 3, "sac": 1}
_UPDATES_PER_EVALUATION, _UPDATES_PER_CHECKPOINT = 1_000, 10_000
_EPSILON_DECAY = 10_000
_STEPS_OF_EPISODES = 32  # of each environment, where DI-engine counts episodes

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


def fits_both_pipelines(create_config: Mapping[str, Any]) -> bool:
    """Whether a pair learns off policy in DI-engine and on policy here, so that each of the pipelines takes it."""
    return _policy_name(dict(leaves(create_config)).get(("policy", "type"))) in ON_POLICY_HERE


def _policy_name(found: object) -> str:
    return str(found).removesuffix("_command")


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
        name = _policy_name(found)
        if name in MISSING:
            raise ConfigError(f"create_config.policy.type: found '{name}', {MISSING[name]}")
        if name not in ALGORITHMS:
            nearest = f"; the nearest to it is {NEAREST[name]}" if name in NEAREST else ""
            raise ConfigError(f"create_config.policy.type: found {found!r}, expected {', '.join(ALGORITHMS)}{nearest}")
        self.algorithm = self.result["algorithm.name"] = ALGORITHMS[name]
        if name in ON_POLICY_HERE:
            self.notes.append(ON_POLICY_HERE[name])

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
        length = self._whole("policy.other.eps.decay", _EPSILON_DECAY)
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
        value = default if value is None else _whole_number(value)
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
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else _whole_number(value)


def _whole_number(value: Any) -> Any:
    """A whole number that is written as 1e4; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_silent(key: str) -> bool:
    """Whether nothing is lost by dropping a key, or a block around it."""
    parts = key.split(".")
    return any(".".join(parts[:n]) in SILENT for n in range(1, len(parts) + 1))
