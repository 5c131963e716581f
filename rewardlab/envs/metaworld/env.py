"""A task of Meta-World as a single environment: seeded scenes, success in every info, pictures, a scripted expert."""

import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rewardlab.data.episodes import Array
from rewardlab.envs.cameras import Frame, Size
from rewardlab.envs.metaworld.drawing import OWN_SIZE, ScenePose, shared_canvas
from rewardlab.envs.metaworld.options import FreeCamera
from rewardlab.envs.missing import missing_package
from rewardlab.envs.opengl import choose_backend, unusable_backend
from rewardlab.errors import ConfigError, DataError
from rewardlab.keys import DEFAULT_CAMERA
from rewardlab.registry import unknown_name

FAMILY = "metaworld"
EPISODE_STEPS = 500  # simulator steps, as in Meta-World's benchmarks


class MetaWorldEnv(gymnasium.Env[Array, Array]):
    """One task of Meta-World. It has no time limit of its own.

    An observation is Meta-World's 39 numbers: gripper and objects, now and one step ago, and the goal. The goal is
    visible as in Meta-World's MT1 benchmark: tasks such as reach and push cannot be solved without it. Actions are the
    motion of the gripper (x, y, z) and the force of its fingers, each in [-1, 1].

    The seed of a reset decides the scene, whatever happened before. (Meta-World's own environments ignore that seed,
    and some keep parts of the last scene.)
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 80}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, task: str, *, camera: FreeCamera | None = None, show_goal: bool = False) -> None:
        tasks, experts = import_tasks(task)
        if task not in tasks:
            raise ConfigError(unknown_name("task of Meta-World", task, tasks))
        self.task, self.render_mode = task, "rgb_array"
        self._camera, self._show_goal = camera or FreeCamera(), show_goal
        self._sim: Any = tasks[task]()
        self._expert: Any = experts[task]()
        self._sim._set_task_called = True
        self._sim.seeded_rand_vec = True
        self._sim.max_path_length = np.inf  # beyond it, step() raises
        self._sim._partially_observable = False
        del self._sim.sawyer_observation_space  # cached, with a goal that is always 0
        model, space = self._sim.model, self._sim.sawyer_observation_space
        self._first_model = {name: getattr(model, name).copy() for name in ("body_pos", "site_pos")}
        self.observation_space = spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32))
        self.action_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.camera_names = (DEFAULT_CAMERA, *(model.camera(number).name for number in range(model.ncam)))
        self._observation: Array = np.zeros(space.shape)
        self._succeeds = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        import mujoco

        super().reset(seed=seed)
        self._choose_scene()
        sim = self._sim
        sim.curr_path_length = 0
        self._place_objects()
        # Positions in `data` are of before the last change: in window-close, of a window that is still closed.
        mujoco.mj_kinematics(sim.model, sim.data)
        sim._prev_obs = sim._get_curr_obs_combined_no_goal()
        observation, space = sim._get_obs(), sim.sawyer_observation_space
        self._observation = np.clip(observation, space.low, space.high)  # as its step() does
        self._succeeds = False  # no task begins solved
        return self._observation.astype(np.float32), {"success": False}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._observation, reward, _, _, info = self._sim.step(np.asarray(action, np.float64))
        self._succeeds = bool(info["success"])
        return self._observation.astype(np.float32), float(reward), False, False, {"success": self._succeeds}

    def scripted_action(self) -> Array:
        """Return what Meta-World's scripted policy for this task does now; a hand that succeeds stays where it is.

        Meta-World ends an episode at its first success. In a third of the tasks, its policies would go on and undo it.
        """
        action = np.clip(self._expert.get_action(self._observation), -1, 1).astype(np.float32)
        if self._succeeds:
            action[:3] = 0
        return action

    def render(self) -> Frame:
        return self.render_cameras((DEFAULT_CAMERA,))[DEFAULT_CAMERA]

    def render_cameras(self, cameras: Sequence[str], image_size: Size = None) -> dict[str, Frame]:
        """Return the present picture of each camera."""
        return self.draw_state(self.keep_state(), cameras, image_size)

    def keep_state(self) -> ScenePose:
        """Return what `draw_state` needs to draw this moment later."""
        return ScenePose.of(self._sim.data)

    def draw_state(self, state: ScenePose, cameras: Sequence[str], image_size: Size = None) -> dict[str, Frame]:
        for name in cameras:
            if name not in self.camera_names:
                raise DataError(unknown_name(f"camera of '{FAMILY}/{self.task}'", name, self.camera_names))
        goals = tuple(name for name, _ in self._sim._target_site_config) if self._show_goal else ()
        size = image_size or OWN_SIZE
        return shared_canvas(f"{FAMILY}/{self.task}", self._sim.model, size).draw(
            state, cameras, self._camera, size, goals
        )

    def close(self) -> None:
        self._sim.close()

    def _choose_scene(self) -> None:
        """Draw the positions of this episode's objects, as Meta-World draws those of its benchmarks' tasks."""
        sim = self._sim
        for name, first in self._first_model.items():
            getattr(sim.model, name)[:] = first
        sim.np_random = self.np_random
        sim._freeze_rand_vec = False
        sim._reset_hand = self._stay  # positions are all that this pass is for
        self._place_objects()
        del sim._reset_hand
        sim._freeze_rand_vec = True

    def _place_objects(self) -> None:
        import mujoco

        mujoco.mj_resetData(self._sim.model, self._sim.data)
        self._sim.reset_model()

    def _stay(self, steps: int = 0) -> None:
        """Replace Meta-World's `_reset_hand`, which simulates 250 steps."""
        import mujoco

        mujoco.mj_forward(self._sim.model, self._sim.data)
        self._sim.init_tcp = self._sim.tcp_center


def import_tasks(task: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the classes of all tasks, and those of their scripted policies; errors name `task`."""
    choose_backend()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from metaworld.env_dict import ALL_V3_ENVIRONMENTS
            from metaworld.policies import ENV_POLICY_MAP
    except ModuleNotFoundError as error:
        raise missing_package(f"{FAMILY}/{task}", str(error.name).partition(".")[0], FAMILY) from error
    except Exception as error:  # of MuJoCo, which reads MUJOCO_GL: RuntimeError, AttributeError, ...
        raise unusable_backend(f"{FAMILY}/{task}", error) from error
    # Its scripted policies warn of actions beyond 1, which are clipped.
    warnings.filterwarnings("ignore", message=r"Constant\(s\) may be too high")
    return ALL_V3_ENVIRONMENTS, ENV_POLICY_MAP
