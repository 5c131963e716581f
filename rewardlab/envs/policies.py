"""Policies that need no training, by name: random and scripted ones."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rewardlab.envs.own_policy import own_policy
from rewardlab.envs.scripted import NoisyExpert, ScriptedExpert, has_scripted_action
from rewardlab.envs.tabletop import TabletopVectorEnv
from rewardlab.envs.tabletop.experts import TabletopExpert
from rewardlab.errors import ConfigError
from rewardlab.registry import Registry, import_named


class Policy(Protocol):
    """Acts on batches of observations."""

    def begin(self, fresh: NDArray[np.bool_]) -> None:
        """Learn in which environments an episode has just begun; a policy without memory does nothing."""
        return

    def act(self, observation: Any) -> NDArray[Any]: ...


POLICIES: Registry[Callable[[VectorEnv[Any, Any, Any], int], Policy]] = Registry("policy")


def make_policy(name: str, env: VectorEnv[Any, Any, Any], seed: int) -> Policy:
    """Return a policy by its name; one of the user's own is `module:name`, see `own_policy`."""
    module, _, entry = name.rpartition(":")
    if module and entry not in POLICIES:
        found = import_named(module, f"policy '{name}'")
        if entry not in POLICIES:  # else a decorator in the module has registered it
            return own_policy(name, getattr(found, entry, None), found, env, seed)
    return POLICIES.find(name)(env, seed)


@POLICIES.register("random")
class RandomPolicy(Policy):
    def __init__(self, env: VectorEnv[Any, Any, Any], seed: int) -> None:
        self._space = env.action_space
        self._space.seed(seed)

    def act(self, observation: Any) -> NDArray[Any]:
        return np.asarray(self._space.sample())


@POLICIES.register("still")
class StillPolicy(Policy):
    """Does nothing, for robots that a person moves: a person's motion takes the place of the policy's."""

    def __init__(self, env: VectorEnv[Any, Any, Any], seed: int) -> None:
        space = env.action_space
        if not isinstance(space, spaces.Box):
            raise ConfigError(f"policy 'still': found actions {space}, expected numbers (a Box), of which 0 is nothing")
        self._action = np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)

    def act(self, observation: Any) -> NDArray[Any]:
        return self._action


class WithRandomActions:
    """A policy some of whose actions are replaced by random ones: the more, the worse, so that data can be ranked."""

    def __init__(self, policy: Policy, env: VectorEnv[Any, Any, Any], random_fraction: float, seed: int) -> None:
        self._policy, self._random, self._fraction = policy, RandomPolicy(env, seed), random_fraction
        self._rng = np.random.default_rng(seed)

    def begin(self, fresh: NDArray[np.bool_]) -> None:
        self._policy.begin(fresh)

    def act(self, observation: Any) -> NDArray[Any]:
        chosen, drawn = self._policy.act(observation), self._random.act(observation)
        replaced = self._rng.random(len(chosen)) < self._fraction
        return np.where(replaced.reshape(-1, *[1] * (chosen.ndim - 1)), drawn, chosen)


def _scripted_policy(env: VectorEnv[Any, Any, Any], seed: int, *, mistakes: bool) -> Policy:
    inner = env.unwrapped
    if isinstance(inner, TabletopVectorEnv):
        return TabletopExpert(inner, seed, mistakes)
    if not has_scripted_action(env):
        name = type(inner).__name__ if env.spec is None else env.spec.id
        raise ConfigError(
            f"the policies 'expert' and 'noisy_expert' need an environment with scripted_action(): '{name}' has none. "
            "Use 'random', the directory of a policy run or your module:name, or give your environment a method "
            "scripted_action() that returns what an expert would do now"
        )
    return NoisyExpert(env, seed) if mistakes else ScriptedExpert(env)


POLICIES.register("expert")(partial(_scripted_policy, mistakes=False))
POLICIES.register("noisy_expert")(partial(_scripted_policy, mistakes=True))
