"""One ManiSkill task on the CPU, as a single Gymnasium environment of NumPy arrays."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rewardlab.envs.cameras import Frame, Size
from rewardlab.envs.maniskill.cameras import find_camera_names
from rewardlab.envs.maniskill.drawing import Drawing, SceneState, find_drawing, read_state
from rewardlab.envs.maniskill.experts import scripted_action
from rewardlab.envs.maniskill.fast_stepping import FastStepper
from rewardlab.envs.maniskill.options import ManiSkillOptions
from rewardlab.envs.maniskill.rotations import Floats
from rewardlab.envs.maniskill.simulator import build_simulator
from rewardlab.errors import ConfigError
from rewardlab.keys import GRASP_KEYS
from rewardlab.observations import to_numpy

Info = dict[str, Any]
MAX_SEED = 2**31


class ManiSkillEnv(gymnasium.Env[Any, Any]):
    """A task of ManiSkill that is stepped on the CPU, drawn only when asked, and decided entirely by its seeds.

    The reward is ManiSkill's `dense` one; of a task without one, its `sparse` one. Only a state that the task calls a
    failure ends an episode (few tasks have one); success does not.
    """

    def __init__(self, env_id: str, options: ManiSkillOptions) -> None:
        self.metadata = {"render_modes": ["rgb_array", "sensors", "all", "human"], "render_fps": 20}
        self.env_id, self.options = env_id, options
        self.simulator = build_simulator(env_id, options, draws=False)
        self.render_mode = options.render_mode
        self.observation_space = self.simulator.single_observation_space
        self._robot_spaces = self.simulator.single_action_space
        self.action_space = spaces.flatten_space(self._robot_spaces)  # of several robots: one box
        self.camera_names = find_camera_names(self.simulator)
        self._rebuilds = self.simulator.reconfiguration_freq != 0
        self._built_from: int | None = None
        self._stepper = find_stepper(env_id, self.simulator, options)
        self._drawn: Drawing | None = None

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Floats, Info]:
        """Start an episode; its seed is `seed`, or a draw from the generator that the last seed began."""
        super().reset(seed=seed)
        episode_seed = int(self.np_random.integers(MAX_SEED))
        observation, info = self.simulator.reset(seed=episode_seed, options=options)
        if self._rebuilds:
            self._built_from = episode_seed
        return _numpy(observation), _read_info(info)

    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, Info]:
        observation, reward, info = self._step_simulator(action)
        return observation, reward, bool(info.get("fail", False)), False, info

    def _step_simulator(self, action: Floats) -> tuple[Floats, float, Info]:
        """Step physics and return what followed."""
        if self._stepper is not None:
            observation, reward, found = self._stepper.step(np.asarray(action, np.float32))
            return observation, reward, _read_info(found)
        command = spaces.unflatten(self._robot_spaces, np.asarray(action, np.float32))
        observation, reward, _, _, found = self.simulator.step(command)
        return _numpy(observation), float(reward), _read_info(found)

    def render_cameras(self, cameras: Sequence[str], image_size: Size) -> dict[str, Frame]:
        """Return what cameras see now."""
        return self.draw_state(self.keep_state(), cameras, image_size)

    def keep_state(self) -> SceneState:
        """Return what `draw_state` needs to draw the present later."""
        return read_state(self.simulator, self._built_from)

    def draw_state(self, state: SceneState, cameras: Sequence[str], image_size: Size) -> dict[str, Frame]:
        """Return what cameras saw in a state; physics does not notice."""
        return self._drawing.draw(state, cameras, image_size)

    def scripted_action(self) -> Floats:
        """Return what the scripted expert of this task does now."""
        return scripted_action(self.env_id, self.simulator)

    def render(self) -> Any:
        """Return ManiSkill's own picture for people; in the mode "human", its window."""
        picture = self._drawing.render(self.keep_state())
        return picture if self.render_mode == "human" else to_numpy(picture)[0]

    def close(self) -> None:
        self._drawn = None
        self.simulator.close()

    @property
    def _drawing(self) -> Drawing:
        """The drawing, built when a picture is first asked for."""
        if self._drawn is None:
            self._drawn = find_drawing(self.env_id, self.options, shared=not self._rebuilds)
        return self._drawn


def find_stepper(env_id: str, simulator: Any, options: ManiSkillOptions) -> FastStepper | None:
    """Return what steps a simulator; None if that is its own `step`."""
    if options.stepping == "original":
        return None
    if FastStepper.supports(simulator):
        return FastStepper(simulator)
    if options.stepping == "fast":
        raise ConfigError(
            f"environment '{env_id}': options.stepping is fast, which steps one robot on the CPU, and this task has "
            f"several or none; use auto"
        )
    return None


def _read_info(info: Info) -> Info:
    """Return facts of a step as Python numbers, with the names that the package uses."""
    facts = {name: _number(value) for name, value in info.items() if name not in ("elapsed_steps", "reconfigure")}
    for name in GRASP_KEYS:
        if name in facts:
            facts[GRASP_KEYS[0]] = bool(facts.pop(name))
    return {name: value for name, value in facts.items() if value is not None}


def _number(value: Any) -> Any:
    """Return the only row of a batch of one."""
    if isinstance(value, dict):
        return {name: _number(part) for name, part in value.items()}
    row = to_numpy(value)
    row = row[0] if row.ndim else row
    return row.item() if row.ndim == 0 else row


def _numpy(observation: Any) -> Floats:
    return np.array(to_numpy(observation)[0], np.float32)  # a copy: ManiSkill may go on writing to it
