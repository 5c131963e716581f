"""The table's mechanics: what a gripper can and cannot do."""

import numpy as np
import pytest

from rewardlab.envs.tabletop.tasks import PegInsertion, PickCube, advance
from rewardlab.envs.tabletop.world import MAX_MOTION, World

STAY = np.zeros(4, np.float32)
CLOSE = np.float32([0, 0, 0, -1])
OPEN = np.float32([0, 0, 0, 1])
DOWN = np.float32([0, 0, -1, 0])
UP_CLOSED = np.float32([0, 0, 1, -1])


def run(task, world: World, action: np.ndarray, steps: int) -> None:
    for _ in range(steps):
        advance(task, world, np.tile(action, (len(world.grip), 1)), np.random.default_rng(0), noise=0.0)


def table(cube_at=(0.0, 0.0, 0.025), grip_at=(0.0, 0.0, 0.10)) -> tuple[PickCube, World]:
    task = PickCube()
    world = task.start(1, np.random.default_rng(0), np.ones(1, np.float32))
    world.object[0], world.grip[0], world.goal[0] = cube_at, grip_at, (0.05, 0.0, 0.15)
    return task, world


def peg_over(aside: float, height: float = 0.10) -> tuple[PegInsertion, World]:
    """A held peg `aside` metres from the hole, its lower end at `height`."""
    task = PegInsertion()
    world = task.start(1, np.random.default_rng(0), np.ones(1, np.float32))
    world.object[0] = world.goal[0] + np.float32([aside, 0, 0])
    world.object[0, 2] = height + task.peg_half[2]
    world.grip = world.object - world.hold_offset
    return task, world


def test_motion_is_bounded_however_large_the_command() -> None:
    task, world = table()
    before = world.grip.copy()
    run(task, world, np.float32([1, -1, 1, 0]), 1)
    assert np.abs(world.grip - before).max() <= MAX_MOTION


def test_fingers_around_the_cube_grasp_and_lift_it() -> None:
    task, world = table(grip_at=(0.0, 0.005, 0.025))
    run(task, world, CLOSE, 4)
    assert world.held[0]
    assert world.opening[0] == pytest.approx(0.05)
    run(task, world, UP_CLOSED, 6)
    assert world.object[0, 2] > 0.12
    assert world.object[0, 1] == pytest.approx(world.grip[0, 1])  # the fingers centred it


@pytest.mark.parametrize("grip_at", [(0.06, 0.0, 0.025), (0.0, 0.06, 0.025), (0.0, 0.0, 0.10)])
def test_fingers_beside_or_above_the_cube_grasp_nothing(grip_at) -> None:
    task, world = table(grip_at=grip_at)
    run(task, world, CLOSE, 6)
    run(task, world, UP_CLOSED, 6)
    assert not world.held[0]
    assert world.object[0, 2] == pytest.approx(0.025)


def test_an_open_gripper_drops_the_cube_and_the_table_stops_it() -> None:
    task, world = table(cube_at=(0, 0, 0.28), grip_at=(0, 0, 0.28))
    world.held[0], world.hold_offset[0], world.opening[0] = True, 0, 0.05
    run(task, world, OPEN, 1)
    assert not world.held[0]
    heights = []
    for _ in range(8):
        run(task, world, OPEN, 1)
        heights.append(float(world.object[0, 2]))
    assert heights[0] - heights[1] < heights[1] - heights[2]  # it speeds up
    assert heights[-1] == pytest.approx(0.025)


def test_a_finger_pushes_the_cube_along() -> None:
    task, world = table(cube_at=(0.05, 0.03, 0.025), grip_at=(-0.02, 0.0, 0.025))
    world.opening[0] = 0.05
    run(task, world, np.float32([1, 0, 0, 0]), 5)
    assert world.object[0, 0] > 0.08
    assert not world.held[0]


def test_fingers_from_above_stop_on_the_cube() -> None:
    task, world = table(cube_at=(0, 0.03, 0.025), grip_at=(0, 0, 0.12))
    world.opening[0] = 0.05
    run(task, world, DOWN, 10)
    assert world.grip[0, 2] - 0.015 >= 0.05 - 1e-4
    assert world.object[0] == pytest.approx([0, 0.03, 0.025])


def test_pick_cube_needs_the_goal_and_a_grip() -> None:
    task, world = table()
    world.object[0] = world.goal[0]
    assert not task.success(world)[0]  # falling past it
    world.held[0] = True
    assert task.success(world)[0]
    world.object[0] += [0, 0, task.tolerance + 0.001]
    assert not task.success(world)[0]


def test_a_centred_peg_goes_in_and_is_a_success() -> None:
    task, world = peg_over(0.001)
    assert not task.success(world)[0]
    run(task, world, DOWN, 12)
    assert task.success(world)[0]
    assert world.object[0, 2] - world.object_half[0, 2] == pytest.approx(task.hole_floor, abs=1e-5)


def test_a_peg_off_the_hole_lands_on_the_block() -> None:
    task, world = peg_over(0.012)
    run(task, world, DOWN, 12)
    assert world.object[0, 2] - world.object_half[0, 2] == pytest.approx(task.block_top)
    assert not task.success(world)[0]


def test_a_peg_in_the_hole_cannot_move_sideways() -> None:
    task, world = peg_over(0.0)
    run(task, world, DOWN, 12)
    run(task, world, np.float32([1, 1, 0, -1]), 5)
    assert np.abs(world.object - world.goal)[0, :2].max() <= task.clearance + 1e-6


def test_a_free_peg_cannot_be_pushed_into_the_block() -> None:
    task, world = peg_over(0.06)
    goal = world.goal[0]
    world.held[:], world.opening[:] = False, 0.08
    world.object[0] = [goal[0] + 0.06, goal[1], 0.045]
    world.grip[0] = [goal[0] + 0.085, goal[1] - 0.046, 0.07]
    for _ in range(40):
        run(task, world, np.float32([-0.3, 0, 0, 0]), 1)
        assert not task.success(world)[0]
        assert abs(world.object[0, 0] - goal[0]) >= task.block_half + world.object_half[0, 0] - 1e-4


def test_a_low_gripper_is_stopped_by_the_side_of_the_block() -> None:
    task, world = peg_over(0.1)
    world.held[:] = False
    world.object[0] = [0.15, 0.15, 0.045]
    world.goal[0, :2] = 0
    world.grip[0], world.grip_velocity[0] = (0.10, 0, 0.02), 0
    for _ in range(10):
        run(task, world, np.float32([-1, 0, 0, 0]), 1)
        assert world.grip[0, 2] == pytest.approx(0.02)
    assert world.grip[0, 0] >= task.block_half


def test_a_peg_beside_the_block_cannot_enter_it_from_the_side() -> None:
    task, world = peg_over(0.075, height=0.01)
    world.grip[0, 2] += 0.03
    world.hold_offset = world.object - world.grip
    run(task, world, np.float32([-1, 0, 0, -1]), 10)
    assert abs(world.object[0, 0] - world.goal[0, 0]) >= task.block_half + world.object_half[0, 0] - 1e-6
