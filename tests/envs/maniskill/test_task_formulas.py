"""Formulas of tasks by hand, on bodies with the attributes of SAPIEN's (which need not be installed)."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rewardlab.envs.maniskill.task_formulas import PickCube, PushCube

LEFT, RIGHT = SimpleNamespace(name="left"), SimpleNamespace(name="right")


def pose(*position: float) -> Any:
    matrix = np.eye(4, dtype=np.float32)
    return SimpleNamespace(
        p=np.array(position, np.float32), q=np.array([1, 0, 0, 0], np.float32), to_transformation_matrix=lambda: matrix
    )


def body(entity: Any, at: Any = None) -> Any:
    return SimpleNamespace(_objs=[SimpleNamespace(entity=entity, entity_pose=at or pose(0, 0, 0))])


def press(finger: Any, cube: Any, *impulse: float) -> Any:
    """A contact in which the finger receives an impulse."""
    bodies = [SimpleNamespace(entity=finger), SimpleNamespace(entity=cube)]
    return SimpleNamespace(bodies=bodies, points=[SimpleNamespace(impulse=np.array(impulse, np.float32))])


def task(cube_at: Any, goal_at: Any, contacts: list[Any], speed: float = 0.0, **constants: float) -> Any:
    """A task whose gripper is at the origin; physics steps last 0.01 s."""
    robot = SimpleNamespace(qpos=np.zeros(9, np.float32), qvel=np.full(9, speed, np.float32))
    physics = SimpleNamespace(get_contacts=lambda: contacts, timestep=0.01)
    agent = SimpleNamespace(
        robot=SimpleNamespace(_objs=[robot]),
        tcp=body(None),
        finger1_link=body(LEFT),
        finger2_link=body(RIGHT),
        scene=SimpleNamespace(px=physics),
    )
    cube, goal = (SimpleNamespace(_objs=[SimpleNamespace(pose=at)]) for at in (cube_at, goal_at))
    return SimpleNamespace(agent=agent, cube=cube, obj=cube, goal_site=goal, goal_region=goal, **constants)


def pick_cube(contacts_on: Any = (), **changes: Any) -> Any:
    made = task(
        **{"cube_at": pose(0.1, 0, 0), "goal_at": pose(0.1, 0, 0.2), "contacts": []} | changes, goal_thresh=0.025
    )
    held = made.cube._objs[0]
    contacts = [press(finger, held, *impulse) for finger, impulse in contacts_on]
    made.agent.scene.px.get_contacts = lambda: contacts
    return PickCube(made).read()


def test_pick_cube_by_hand() -> None:
    observation, reward, info = pick_cube()
    assert observation.shape == (42,)
    assert observation[-6:] == pytest.approx([0.1, 0, 0, 0, 0, 0.2])
    assert reward == pytest.approx(1 - np.tanh(0.5))
    assert info == {"success": False, "is_obj_placed": False, "is_robot_static": True, "is_grasped": False}


def test_a_grasp_is_both_fingers_pressed_apart() -> None:
    left, right = (LEFT, (0, 0.02, 0)), (RIGHT, (0, -0.02, 0))  # 2 N each, in the direction in which they open
    _, reward, info = pick_cube([left, right])
    assert info["is_grasped"]
    assert reward == pytest.approx(1 - np.tanh(0.5) + 1 + 1 - np.tanh(1))
    weak, aside = (LEFT, (0, 0.004, 0)), (LEFT, (0.02, 0, 0))
    for contacts in ([left], [weak, right], [aside, right], [left, (RIGHT, (0, 0.02, 0))]):
        assert not pick_cube(contacts)[2]["is_grasped"]


def test_success_in_pick_cube_needs_the_arm_to_be_still() -> None:
    at_goal = {"goal_at": pose(0.1, 0, 0.02)}
    assert pick_cube(**at_goal)[1] == 5
    _, reward, info = pick_cube(**at_goal, speed=0.3)
    assert info["is_obj_placed"]
    assert not info["success"]
    assert reward == pytest.approx(2 - np.tanh(0.5) - np.tanh(5 * 0.3 * np.sqrt(7)))


@pytest.mark.parametrize(("cube_x", "height", "success"), [(0.2, 0.02, True), (0.2, 0.03, False), (0.05, 0.02, False)])
def test_push_cube_by_hand(cube_x: float, height: float, success: bool) -> None:
    made = task(pose(cube_x, 0, height), pose(0.25, 0, 0), [], goal_radius=0.1, cube_half_size=0.02)
    observation, reward, info = PushCube(made).read()
    assert observation.shape == (35,)
    assert info == {"success": success}
    assert reward == pytest.approx(4 if success else 1 - np.tanh(5 * np.hypot(cube_x - 0.025, height)), abs=1e-6)


def test_push_cube_pays_for_the_cube_once_it_is_reached() -> None:
    made = task(pose(0.025, 0, 0.005), pose(0.225, 0, 0), [], goal_radius=0.1, cube_half_size=0.02)
    expected = 1 - np.tanh(0.025) + (1 - np.tanh(1)) * (2 - np.tanh(5 * 0.015))
    assert PushCube(made).read()[1] == pytest.approx(expected, abs=1e-6)
