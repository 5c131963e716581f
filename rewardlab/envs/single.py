"""Finishes a single environment: what a config says of every environment, of whatever family, is put around it here."""

from typing import Any, TypeVar

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.wrappers import TimeLimit

from rewardlab.config.schema import EnvConfig, WrapperConfig
from rewardlab.envs.checked import CheckedEnv
from rewardlab.envs.closing import closed_after_errors
from rewardlab.envs.observed_parts import observe_as_configured
from rewardlab.envs.plain_values import PlainValues
from rewardlab.envs.step_results import flags_of
from rewardlab.errors import ConfigError, DataError, user_traceback
from rewardlab.keys import SUCCESS_KEYS
from rewardlab.registry import import_named, unknown_name

NO_LIMIT = 2**31 - 1  # steps; Gymnasium's -1 ends each step of simulators that count for themselves

Env = gymnasium.Env[Any, Any]
Wrapped = TypeVar("Wrapped", Env, VectorEnv[Any, Any, Any])


def finish(env: Env, cfg: EnvConfig) -> Env:
    """Return a single environment as its config wants it; each family calls this for the environments that it makes.

    An environment that cannot be so is closed.

    From the inside out: values are plain (`PlainValues`); `wrappers`; `action_repeat`; `max_episode_steps`;
    `reward: sparse` and `success_hold_steps`, which need `success` in the infos; the observation that `obs_mode` names
    (`observed_parts`); checks of what is returned, and that episodes end. So steps are those of the policy everywhere.

    Where `cfg.max_episode_steps` is set, a family makes its environment without a limit of its own.
    """
    with closed_after_errors(env.close):
        return _finish(env, cfg)


def _finish(env: Env, cfg: EnvConfig) -> Env:
    if env.unwrapped.spec is None:  # names it in messages and reports
        env.unwrapped.spec = EnvSpec(cfg.id)
    env = PlainValues(env, cfg.id)
    for wrapper in cfg.wrappers:
        wrapper_class = find_wrapper(wrapper)
        if issubclass(wrapper_class, gymnasium.Wrapper):  # those of a vector environment go around all copies
            env = wrap(env, wrapper_class, wrapper)
    if cfg.action_repeat > 1:
        env = ActionRepeat(env, cfg.action_repeat)
    if cfg.max_episode_steps is not None:
        env = TimeLimit(env, cfg.max_episode_steps)
    if cfg.reward == "sparse" or cfg.success_hold_steps is not None:
        env = SuccessRules(env, cfg)
    return CheckedEnv(observe_as_configured(env, cfg), cfg.id, limited=_has_time_limit(env))


def _has_time_limit(env: Env) -> bool:
    """Return whether an environment says that its episodes have a limit.

    Its spec alone does not tell: Gymnasium has none for an environment with options that cannot be copied.
    """
    layer = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, TimeLimit):
            return True
        layer = layer.env
    return env.spec is not None and env.spec.max_episode_steps is not None


def policy_steps(cfg: EnvConfig, own_limit: int | None) -> int | None:
    """Return the length of an episode in steps of the policy, from the config or the environment's own limit."""
    if cfg.max_episode_steps is not None or own_limit is None:
        return cfg.max_episode_steps
    return max(own_limit // cfg.action_repeat, 1)


class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats each action, unless the episode ends before; the reward is the sum, all else is of the last step."""

    def __init__(self, env: Env, times: int) -> None:
        super().__init__(env)
        self._times = times

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self._times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, bool(terminated), bool(truncated), info


class SuccessRules(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Ends an episode after `success_hold_steps` steps of success in a row; with `reward: sparse` the reward is 1 in a
    step of success and 0 in others."""

    def __init__(self, env: Env, cfg: EnvConfig) -> None:
        super().__init__(env)
        self._cfg, self._name = cfg, cfg.id
        self._hold, self._sparse = cfg.success_hold_steps, cfg.reward == "sparse"
        self._steps = self._streak = 0
        self._told = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._steps = self._streak = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        success = bool(flags_of(info, SUCCESS_KEYS, 1, self._locate)[0])
        self._streak = self._streak + 1 if success else 0
        if self._hold is not None and self._streak >= self._hold:
            terminated, truncated = True, False
        self._told |= any(key in info for key in SUCCESS_KEYS)
        if (terminated or truncated) and not self._told:
            raise unreported_success(self._cfg)
        return observation, float(success) if self._sparse else reward, terminated, truncated, info

    def _locate(self, _: int) -> str:
        return f"'{self._name}', step {self._steps} after its reset"


def unreported_success(cfg: EnvConfig) -> DataError:
    """Return the error for a key that needs success, in an environment that never reports it."""
    key = "reward=sparse" if cfg.reward == "sparse" else f"success_hold_steps={cfg.success_hold_steps}"
    return DataError(
        f"env.train.{key}: '{cfg.id}' does not report success, so it has no effect: no info of the first episode has "
        f"one of {', '.join(SUCCESS_KEYS)}. Remove the key, or report it in a wrapper (env.train.wrappers)"
    )


def find_wrapper(wrapper: WrapperConfig) -> type[gymnasium.Wrapper[Any, Any, Any, Any]] | type[VectorWrapper]:
    """Import the class that an item of `wrappers` names."""
    module_name, _, name = wrapper.name.partition(":")
    module = import_named(module_name, f"env.train.wrappers: '{wrapper.name}'")
    found = getattr(module, name, None)
    kinds = (gymnasium.Wrapper, VectorWrapper)
    if isinstance(found, type) and issubclass(found, kinds):
        return found
    offered = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, kinds)]
    problem = unknown_name(f"wrapper of {module_name}", name, [key for key in offered if not key.startswith("_")])
    raise ConfigError(f"env.train.wrappers: {problem}. Expected a class of gymnasium.Wrapper")


def wrap(env: Wrapped, wrapper_class: Any, wrapper: WrapperConfig) -> Wrapped:
    """Put a wrapper around an environment, with its options."""
    try:
        return wrapper_class(env, **wrapper.options)
    except Exception as error:
        if user_traceback(error) is not None:  # in its constructor
            raise
        what = "does not take these options" if isinstance(error, TypeError) else f"fails with {type(error).__name__}"
        raise ConfigError(f"env.train.wrappers: '{wrapper.name}' {what}: {error}") from error
