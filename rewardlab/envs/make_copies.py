"""Builds the copies of a single environment, in this process or shared out to several."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import gymnasium

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.copies import CopiesVectorEnv

MakeOne: TypeAlias = Callable[[EnvConfig], gymnasium.Env[Any, Any]]  # defined in a module, so that it can be pickled


def make_copies(cfg: EnvConfig, make_one: MakeOne, *, expensive: bool | None = None) -> CopiesVectorEnv:
    """Build `cfg.num_envs` copies of the environment that `make_one(cfg)` builds, in `cfg.processes` processes.

    `expensive` says whether a step takes long enough that several processes pay; None measures it.
    """
    return CopiesVectorEnv([partial(make_one, cfg)] * cfg.num_envs)
