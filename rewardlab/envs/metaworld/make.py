"""Builds environments of the family `metaworld` from their part of a config."""

from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.checked import CheckedEnv
from rewardlab.envs.make_copies import make_copies
from rewardlab.envs.gym import RenderedObservation
from rewardlab.envs.metaworld.drawing import read_camera
from rewardlab.envs.metaworld.env import EPISODE_STEPS, FAMILY, MetaWorldEnv
from rewardlab.errors import ConfigError
from rewardlab.registry import unknown_name

OPTIONS = ("camera", "show_goal", "action_repeat")


def make_metaworld_vec_env(cfg: EnvConfig) -> VectorEnv[Any, Any, Any]:
    """Build `cfg.num_envs` copies of a task."""
    return make_copies(cfg, make_metaworld_env, expensive=True)


def make_metaworld_env(cfg: EnvConfig) -> gymnasium.Env[Any, Any]:
    """Build one copy of the task `metaworld/<task>`."""
    for name in cfg.options:
        if name not in OPTIONS:
            raise ConfigError(unknown_name(f"option of '{cfg.id}'", name, OPTIONS))
    show_goal = cfg.options.get("show_goal", False)
    if not isinstance(show_goal, bool):
        raise ConfigError(f"options.show_goal: found {show_goal!r}, expected true or false")
    repeat = cfg.options.get("action_repeat", 1)
    env: gymnasium.Env[Any, Any] = MetaWorldEnv(
        cfg.id.removeprefix(f"{FAMILY}/"),
        reward=cfg.reward,
        camera=read_camera(cfg.options.get("camera", {})),
        show_goal=show_goal,
    )
    env.spec = EnvSpec(cfg.id)
    env = ActionRepeat(env, repeat)
    env = gymnasium.wrappers.TimeLimit(env, cfg.max_episode_steps or EPISODE_STEPS // repeat)
    return CheckedEnv(env if cfg.obs_mode == "state" else RenderedObservation(env, cfg), cfg.id)


class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: gymnasium.Env[Any, Any], times: int) -> None:
        super().__init__(env)
        self._times = times

    def step(self, action: Any) -> Any:
        total = 0.0
        for _ in range(self._times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
        return observation, total, terminated, truncated, info
