"""Finds wrong names of environments before a run imports torch, which takes seconds."""

from dataclasses import replace

import gymnasium

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.from_module import unknown_environment
from rewardlab.envs.make import FAMILIES, make_vec_env

BUILT_IN = ("tabletop", "toy")  # made in milliseconds, without torch


def check_env(cfg: EnvConfig) -> None:
    """Raise what making an environment would raise about its id, its options and its cameras, if that is known early.

    Environments of modules, simulators and robots answer themselves, when they are made.
    """
    family, slash, _ = cfg.id.partition("/")
    if ":" in cfg.id or cfg.wrappers or (slash and family in FAMILIES and family not in BUILT_IN):
        return
    if slash and family in BUILT_IN:
        make_vec_env(replace(cfg, num_envs=1)).close()
        return
    try:
        gymnasium.spec(cfg.id)
    except gymnasium.error.UnregisteredEnv as error:
        raise unknown_environment(cfg.id) from error
