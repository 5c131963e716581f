"""Policies that a module of the user's defines, without a decorator."""

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rewardlab.errors import ConfigError, DataError
from rewardlab.observations import to_numpy
from rewardlab.registry import unknown_name

EXPECTED = (
    "a function of the observations that returns the actions, a class with act(observations), or a function "
    "(env, seed) that returns an object with it"
)


class OwnPolicy:
    """Acts as a function or an object of the user's says, and checks that each environment gets an action."""

    def __init__(self, name: str, act: Callable[[Any], Any], begin: Any, env: VectorEnv[Any, Any, Any]) -> None:
        self._name, self._act, self._begin = name, act, begin
        self._shape = tuple(env.action_space.shape or (env.num_envs,))

    def begin(self, fresh: NDArray[np.bool_]) -> None:
        if self._begin is not None:
            self._begin(fresh)

    def act(self, observation: Any) -> NDArray[Any]:
        action = to_numpy(self._act(observation))
        if action.shape != self._shape:
            raise DataError(
                f"policy '{self._name}' returned actions of shape {list(action.shape)}; expected {list(self._shape)}, "
                "an action for each environment"
            )
        return action


def own_policy(name: str, found: Any, module: ModuleType, env: VectorEnv[Any, Any, Any], seed: int) -> OwnPolicy:
    """Return the policy that something in a module stands for.

    A function of one argument is `act` itself, unless that is called `env`. Other functions, and classes, are called
    with as many of `(env, seed)` as they take; what comes out has `act(observations)`, and may have `begin(fresh)`.
    """
    if found is None:
        offered = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ConfigError(unknown_name(f"policy of {module.__name__}", name.rpartition(":")[2], offered))
    policy = found
    if isinstance(found, type) or (callable(found) and not hasattr(found, "act")):
        given = _given(found, (env, seed))
        if given is None:
            return OwnPolicy(name, found, None, env)
        policy = found(*given)
    act = getattr(policy, "act", None)
    if not callable(act):
        kind = type(policy).__name__
        raise ConfigError(f"policy '{name}' is of type {kind}, without a method act(observations); expected {EXPECTED}")
    return OwnPolicy(name, act, getattr(policy, "begin", None), env)


def _given(maker: Callable[..., Any], offered: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return what to make a policy with; None if a function makes none, but acts."""
    try:
        parameters = list(inspect.signature(maker).parameters.values())
    except (TypeError, ValueError):  # written in C
        parameters = []
    by_place = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = [one for one in by_place if one.default is one.empty]
    if by_place[:1] and (by_place[0].name == "env" or len(needed) > 1):
        return offered[: len(by_place)]
    return () if isinstance(maker, type) else None
