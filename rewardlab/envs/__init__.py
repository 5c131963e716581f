"""Environments: built-in tasks, Meta-World, ManiSkill, any Gymnasium id, and wrappers around them."""

from rewardlab.envs.make import make_vec_env

__all__ = ["make_vec_env"]
