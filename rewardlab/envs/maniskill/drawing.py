"""Draws states of a ManiSkill task.

Environments that step have no visuals. One further copy of the task in a process has them, never steps, and takes the
poses of whatever is to be drawn: so drawing cannot disturb physics, a state can be drawn long after it has passed, and
a process loads its meshes once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from rewardlab.envs.cameras import Frame, Size
from rewardlab.envs.maniskill.cameras import CameraSettings, add_camera, find_cameras
from rewardlab.envs.maniskill.options import ManiSkillOptions
from rewardlab.envs.maniskill.rotations import Floats
from rewardlab.envs.maniskill.simulator import build_simulator
from rewardlab.envs.maniskill.visuals import simplify_visuals
from rewardlab.errors import ConfigError
from rewardlab.registry import unknown_name


@dataclass(frozen=True)
class SceneState:
    """Where everything is: position and quaternion of actors and of the roots of articulations, and joint positions."""

    actors: Floats  # [actors, 7]
    roots: Floats  # [articulations, 7]
    joints: tuple[Floats, ...]  # per articulation
    built_from: int | None  # seed of the reset that built the scene, where each reset builds another


class Drawing:
    """A copy of a task with visuals, in which states are drawn."""

    def __init__(self, env_id: str, options: ManiSkillOptions) -> None:
        self._options = options
        self._env_id = env_id
        self._simulator = build_simulator(env_id, options, draws=True)
        self._built_from: int | None = None
        self._prepare()

    def _prepare(self) -> None:
        """Adapt the visuals of a scene that was just built."""
        simulator = self._simulator
        self._scene = simulator.scene.sub_scenes[0]
        if self._options.visuals != "full":
            simplify_visuals(self._scene)
        self._goals = list(simulator._hidden_objects)
        if self._options.show_goal:
            simulator._hidden_objects.clear()  # ManiSkill hides them again whenever it draws
        self._settings: dict[str, CameraSettings] = find_cameras(self._env_id, simulator, self._options.camera)
        self._cameras: dict[tuple[str, Size], Any] = {}
        self._placed = [b""] * len(simulator.scene.actors)

    def draw(self, state: SceneState, cameras: Sequence[str], size: Size) -> dict[str, Frame]:
        """Return what cameras see in a state; a size of None is each camera's own."""
        self._place(state)
        if not self._options.show_goal:
            for goal in self._goals:
                goal.hide_visual()
        self._scene.update_render()
        return {camera: self._picture(camera, size) for camera in cameras}

    def render(self, state: SceneState) -> Any:
        """Return what ManiSkill's `render()` returns in a state: a picture, or its window in the mode "human"."""
        self._place(state)
        return self._simulator.render()

    def _picture(self, name: str, size: Size) -> Frame:
        if name not in self._settings:
            raise ConfigError(unknown_name(f"camera of '{self._env_id}'", name, self._settings))
        if (name, size) not in self._cameras:
            self._cameras[name, size] = add_camera(self._scene, self._settings[name], size)
            self._scene.update_render()
        camera = self._cameras[name, size]
        camera.take_picture()
        return np.ascontiguousarray(camera.get_picture("Color")[..., :3])

    def _place(self, state: SceneState) -> None:
        if state.built_from != self._built_from:
            self._simulator.reset(seed=state.built_from, options={"reconfigure": True})
            self._built_from = state.built_from
            self._prepare()
        from sapien import Pose

        scene = self._simulator.scene
        for place, (actor, pose) in enumerate(zip(scene.actors.values(), state.actors, strict=True)):
            if self._placed[place] != (found := pose.tobytes()):
                actor._objs[0].set_pose(Pose(pose[:3], pose[3:]))
                self._placed[place] = found
        robots = zip(scene.articulations.values(), state.roots, state.joints, strict=True)
        for articulation, root, joints in robots:
            articulation._objs[0].set_root_pose(Pose(root[:3], root[3:]))
            articulation._objs[0].set_qpos(joints)


def read_state(simulator: Any, built_from: int | None) -> SceneState:
    """Return where everything is in a simulator."""
    actors = [_numbers(actor._objs[0].pose) for actor in simulator.scene.actors.values()]
    robots = [articulation._objs[0] for articulation in simulator.scene.articulations.values()]
    return SceneState(
        np.array(actors, np.float32).reshape(-1, 7),
        np.array([_numbers(robot.root_pose) for robot in robots], np.float32).reshape(-1, 7),
        tuple(np.array(robot.qpos, np.float32) for robot in robots),
        built_from,
    )


_drawings: WeakValueDictionary[tuple[str, str], Drawing] = WeakValueDictionary()


def find_drawing(env_id: str, options: ManiSkillOptions, *, shared: bool) -> Drawing:
    """Return a drawing of a task; a shared one is that of every copy of this task in this process."""
    if not shared:
        return Drawing(env_id, options)
    key = (env_id, repr(options))
    if (drawing := _drawings.get(key)) is None:
        drawing = _drawings[key] = Drawing(env_id, options)
    return drawing


def _numbers(pose: Any) -> list[float]:
    return [*pose.p, *pose.q]
