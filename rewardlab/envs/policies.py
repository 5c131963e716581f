"""Policies that act before anything has been learned, by name."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rewardlab.envs.tabletop import TabletopVectorEnv
from rewardlab.envs.tabletop.experts import TabletopExpert
from rewardlab.errors import ConfigError
from rewardlab.registry import Registry


class Policy(Protocol):
    """Acts on batches of observations; told where an episode has just begun."""

    def begin(self, fresh: NDArray[np.bool_]) -> None: ...

    def act(self, observation: Any) -> NDArray[Any]: ...


POLICIES: Registry[Callable[[VectorEnv[Any, Any, Any], int], Policy]] = Registry("policy")


def make_policy(name: str, env: VectorEnv[Any, Any, Any], seed: int) -> Policy:
    return POLICIES.find(name)(env, seed)


@POLICIES.register("random")
class RandomPolicy:
    def __init__(self, env: VectorEnv[Any, Any, Any], seed: int) -> None:
        self._space = env.action_space
        self._space.seed(seed)

    def begin(self, fresh: NDArray[np.bool_]) -> None:
        """Nothing to forget."""

    def act(self, observation: Any) -> NDArray[Any]:
        return np.asarray(self._space.sample())


class WithRandomActions:
    """A policy that chance replaces in a share of the steps: the more, the worse, which rankings can be made of."""

    def __init__(self, policy: Policy, env: VectorEnv[Any, Any, Any], share: float, seed: int) -> None:
        self._policy, self._random, self._share = policy, RandomPolicy(env, seed), share
        self._rng = np.random.default_rng(seed)

    def begin(self, fresh: NDArray[np.bool_]) -> None:
        self._policy.begin(fresh)

    def act(self, observation: Any) -> NDArray[Any]:
        meant, drawn = self._policy.act(observation), self._random.act(observation)
        replaced = self._rng.random(len(meant)) < self._share
        return np.where(replaced.reshape(-1, *[1] * (meant.ndim - 1)), drawn, meant)


class _ScriptedPolicy:
    """Knows everything about the tables it was made for, whatever they show to others."""

    def __init__(self, env: VectorEnv[Any, Any, Any], seed: int, mistakes: bool) -> None:
        table = env.unwrapped
        if not isinstance(table, TabletopVectorEnv):
            raise ConfigError(
                "the policies 'expert' and 'noisy_expert' know the tabletop tasks only; use 'random' here"
            )
        self._table = table
        self._expert = TabletopExpert(table.task.name, env.num_envs, seed, mistakes)

    def begin(self, fresh: NDArray[np.bool_]) -> None:
        self._expert.begin(fresh)

    def act(self, observation: Any) -> NDArray[Any]:
        return self._expert.act(self._table.state)


@POLICIES.register("expert")
def _expert(env: VectorEnv[Any, Any, Any], seed: int) -> Policy:
    return _ScriptedPolicy(env, seed, mistakes=False)


@POLICIES.register("noisy_expert")
def _noisy_expert(env: VectorEnv[Any, Any, Any], seed: int) -> Policy:
    return _ScriptedPolicy(env, seed, mistakes=True)
