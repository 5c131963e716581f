"""Environments: the built-in table, any Gymnasium id, and the wrappers around them."""

from rewardlab.envs.make import make_vec_env

__all__ = ["make_vec_env"]
