"""ManiSkill's own batch of environments: physics, observations and pictures are tensors that stay on one GPU."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from torch import Tensor
from torch.nn.functional import interpolate

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.cameras import Size
from rewardlab.envs.maniskill.cameras import chosen_pose, look_at
from rewardlab.envs.maniskill.options import ManiSkillOptions
from rewardlab.envs.maniskill.simulator import build_batch, find_task
from rewardlab.envs.observed_parts import no_proprioception
from rewardlab.envs.single import NO_LIMIT, policy_steps
from rewardlab.envs.tensor_batch import SeenPictures, TensorBatchEnv
from rewardlab.errors import ConfigError
from rewardlab.keys import DEFAULT_CAMERA
from rewardlab.registry import unknown_name

PHYSICS = "physx_cuda"


def make_gpu_batch(cfg: EnvConfig, options: ManiSkillOptions, physics: str = PHYSICS) -> TensorBatchEnv:
    """Build `cfg.num_envs` environments that step as one batch."""
    if options.stepping == "fast":
        raise ConfigError(f"environment '{cfg.id}': options.stepping is fast, which is for the CPU; use auto")
    if cfg.processes is not None:
        raise ConfigError(f"processes: '{cfg.id}' is one batch on the GPU; found {cfg.processes}, expected null")
    if options.visuals == "cheap":
        raise ConfigError(f"environment '{cfg.id}': options.visuals is cheap, which is for the CPU; a GPU draws full")
    if cfg.obs_mode == "proprio+images":
        raise ConfigError(no_proprioception(cfg.id))
    simulator = ManiSkillBatch(cfg.id, options, cfg.num_envs, cfg.frame_size, physics)
    for camera in cfg.cameras if cfg.obs_mode != "state" else ():
        simulator.check_camera(camera)
    seen = SeenPictures(cfg.cameras, cfg.frame_size, with_state=cfg.obs_mode == "state+images")
    env = TensorBatchEnv(
        simulator,
        max_episode_steps=policy_steps(cfg, find_task(cfg.id).max_episode_steps) or NO_LIMIT,
        success_hold_steps=cfg.success_hold_steps,
        action_repeat=cfg.action_repeat,
        sparse=cfg.reward == "sparse",
        seen=None if cfg.obs_mode == "state" else seen,
    )
    env.spec = EnvSpec(cfg.id)
    return env


class ManiSkillBatch:
    """A task as N environments in one simulator. Its cameras are those of the task, at one size for all.

    `base_camera` stands where `options.camera` says, or where success can be seen, if that is known of the task.
    """

    def __init__(
        self, env_id: str, options: ManiSkillOptions, num_envs: int, size: tuple[int, int], physics: str
    ) -> None:
        self.env_id = env_id
        find_task(env_id)  # first: it chooses the Vulkan driver, and says what is missing
        camera: dict[str, Any] = {"height": size[0], "width": size[1]}
        if (pose := chosen_pose(env_id, options.camera)) is not None:
            camera |= {"pose": look_at(pose), "fov": pose.fov}
        self._env = build_batch(
            env_id, options, num_envs=num_envs, sim_backend=physics, sensor_configs={DEFAULT_CAMERA: camera}
        )
        self.num_envs, self.device = num_envs, torch.device(self._env.device)
        self.observation_space: spaces.Space[Any] = self._env.single_observation_space
        self.action_space: spaces.Space[Any] = self._env.single_action_space
        self.camera_names = tuple(self._env._sensors)
        if options.show_goal:
            for hidden in self._env._hidden_objects:
                hidden.show_visual()
            self._env._hidden_objects.clear()
        self._random = np.random.default_rng()

    def reset(self, seeds: list[int] | None, rows: Tensor | None) -> tuple[Any, Mapping[str, Any]]:
        """Start over; resets without seeds follow from the last ones.

        ManiSkill draws from generators of its own, which go on from the last seeds, and from torch's global one.
        """
        if seeds is not None:
            self._random = np.random.default_rng(seeds)
            seeds = [seed % 2**31 for seed in seeds]
        with torch.random.fork_rng():
            torch.manual_seed(int(self._random.integers(2**63)))
            observation, info = self._env.reset(seed=seeds, options={} if rows is None else {"env_idx": rows})
        return observation, info

    def step(self, actions: Tensor) -> tuple[Any, Tensor, Mapping[str, Any]]:
        observation, reward, _, _, info = self._env.step(actions)
        return observation, reward, info

    def draw(self, cameras: Sequence[str], size: Size) -> dict[str, Tensor]:
        """Return the present frames; one size of the cameras is drawn, others are resized."""
        for camera in cameras:
            self.check_camera(camera)
        images = self._env.get_sensor_images()
        return {camera: _resized(images[camera]["rgb"][..., :3], size) for camera in cameras}

    def check_camera(self, camera: str) -> None:
        """Raise if the task has no such camera."""
        if camera not in self.camera_names:
            raise ConfigError(unknown_name(f"camera of '{self.env_id}'", camera, self.camera_names))

    def close(self) -> None:
        self._env.close()


def _resized(frames: Tensor, size: Size) -> Tensor:
    if size is None or tuple(frames.shape[1:3]) == size:
        return frames
    larger = interpolate(frames.permute(0, 3, 1, 2).float(), size, mode="area")
    return larger.round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()
