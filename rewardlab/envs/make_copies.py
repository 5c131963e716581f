"""Builds the copies of a single environment, in this process or shared out to several."""

import importlib
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, TypeAlias

import gymnasium

from rewardlab.config.schema import EnvConfig
from rewardlab.cores import own_cores
from rewardlab.envs.copies import CopiesVectorEnv, MakeCopy
from rewardlab.envs.processes import packed_makers
from rewardlab.errors import ConfigError

MakeOne: TypeAlias = Callable[[EnvConfig], gymnasium.Env[Any, Any]]  # defined in a module, so that it can be pickled

# Seconds that a step of one copy takes at least if several processes pay: a message to a process and its answer cost
# about 0.2 ms, and starting a process a second (benchmarks/env_processes.py).
EXPENSIVE_STEP = 0.3e-3
SMALLEST = 10_000  # bytes that a copy of the smallest environment takes
_MEASURED_STEPS, _MEASURED_SECONDS = 15, 0.1


def make_copies(cfg: EnvConfig, make_one: MakeOne, *, expensive: bool | None = None) -> CopiesVectorEnv:
    """Build `cfg.num_envs` copies of the environment that `make_one(cfg)` builds, in `cfg.processes` processes.

    If the config does not say how many, they are as many as cores if a step is `expensive`, else one; None measures
    it. The number of processes changes no numbers.
    """
    _check_memory(cfg)
    spec = None if ":" in cfg.id else gymnasium.registry.get(cfg.id)
    maker = partial(_make_registered, spec, make_one, cfg)
    processes = min(cfg.processes or _default_processes(cfg, maker, expensive), cfg.num_envs)
    return CopiesVectorEnv([maker] * cfg.num_envs, processes, cfg.id)


def _check_memory(cfg: EnvConfig) -> None:
    needed, memory = cfg.num_envs * SMALLEST, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ConfigError(
            f"num_envs: found {cfg.num_envs}, but so many of '{cfg.id}' need at least {needed / 1e9:,.0f} GB, and this "
            f"machine has {memory / 1e9:,.0f} GB; expected fewer"
        )


def _make_registered(spec: Any, make_one: MakeOne, cfg: EnvConfig) -> gymnasium.Env[Any, Any]:
    """Build a copy; its id may have been registered by a module that only the parent process has imported."""
    if spec is not None and spec.id not in gymnasium.registry:
        if isinstance(spec.entry_point, str):
            importlib.import_module(spec.entry_point.partition(":")[0])  # which may register it
        gymnasium.registry.setdefault(spec.id, spec)
    return make_one(cfg)


def _default_processes(cfg: EnvConfig, maker: MakeCopy, expensive: bool | None) -> int:
    processes = min(own_cores(), cfg.num_envs)
    if processes == 1 or expensive is False or (expensive is None and _step_time(maker) < EXPENSIVE_STEP):
        return 1
    try:
        packed_makers(cfg.id, [maker])
    except ConfigError as error:
        warnings.warn(f"one process steps all environments: {error}", stacklevel=4)
        return 1
    return processes


def _step_time(maker: MakeCopy) -> float:
    """Return the seconds that a step takes; 0 if the environment fails, which it will do again where that is shown.

    The copy that is measured is used for nothing else.
    """
    times: list[float] = []
    try:
        with maker() as env:
            env.reset(seed=0)
            env.action_space.seed(0)
            while len(times) < _MEASURED_STEPS and (len(times) < 3 or sum(times) < _MEASURED_SECONDS):
                action, start = env.action_space.sample(), time.perf_counter()
                _, _, terminated, truncated, _ = env.step(action)
                times.append(time.perf_counter() - start)
                if terminated or truncated:
                    env.reset()
    except Exception:
        return 0.0
    return median(times)
