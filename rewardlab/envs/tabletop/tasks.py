"""What is to be done: where an episode starts, what stops the object, when it is a success, what it is worth."""

from typing import Protocol

import numpy as np

from rewardlab.envs.tabletop.world import (
    FINGER_HALF,
    FINGER_RISE,
    MAX_OPENING,
    Bools,
    Floats,
    World,
    move_gripper,
    move_object,
    push_by_fingers,
    rest_on_table,
    shift_gripper,
    stop_object_at,
)
from rewardlab.registry import Registry


class Task(Protocol):
    """One task; holds constants only, so that one object serves any number of environments."""

    name: str
    goal_is_a_ball: bool

    def start(self, n: int, rng: np.random.Generator, scale: Floats) -> World:
        """`n` fresh episodes; `scale` [n] multiplies the object's size."""

    def stop_gripper(self, world: World, before: Floats) -> None:
        """Keep the gripper, which was at `before`, out of what it cannot enter."""

    def allowed(self, world: World, before: Floats) -> Floats:
        """Where the object's centre may be, given where it would go and where it was `before`."""

    def success(self, world: World) -> Bools: ...

    def progress(self, world: World) -> Floats:
        """The dense reward without the bonus for success, in [0, 1]."""


TASKS: Registry[type[Task]] = Registry("tabletop task")


def advance(task: Task, world: World, action: Floats, rng: np.random.Generator, noise: float) -> None:
    """One step of the mechanics, in place."""
    object_before, grip_before = world.object.copy(), world.grip.copy()
    move_gripper(world, action, rng, noise)
    move_object(world)
    task.stop_gripper(world, grip_before)
    stop_object_at(world, task.allowed(world, object_before))
    object_before = world.object.copy()
    push_by_fingers(world)
    stop_object_at(world, task.allowed(world, object_before))  # a push, too, ends where something solid begins


# The state a policy sees: positions in metres, with the relative ones because they are what matters.
STATE_LAYOUT = {
    "grip": 3,
    "grip_velocity": 3,
    "opening": 1,
    "held": 1,
    "object": 3,
    "object_from_grip": 3,
    "goal": 3,
    "goal_from_object": 3,
    "object_half": 3,
}
STATE_SIZE = sum(STATE_LAYOUT.values())
PROPRIO = ("grip", "grip_velocity", "opening", "held")  # the first entries: what a robot knows without looking
PROPRIO_SIZE = sum(STATE_LAYOUT[name] for name in PROPRIO)


def observe(world: World) -> Floats:
    """The state observations [n, STATE_SIZE], laid out as in STATE_LAYOUT."""
    derived = {"object_from_grip": world.object - world.grip, "goal_from_object": world.goal - world.object}
    parts = [derived[name] if name in derived else getattr(world, name) for name in STATE_LAYOUT]
    return np.concatenate([part.reshape(len(world.grip), -1) for part in parts], axis=1, dtype=np.float32)


def part_of_state(state: Floats, name: str) -> Floats:
    """One entry of STATE_LAYOUT, out of state observations: [n] if it is a single number, else [n, size]."""
    names = list(STATE_LAYOUT)
    start = sum(STATE_LAYOUT[before] for before in names[: names.index(name)])
    size = STATE_LAYOUT[name]
    return state[:, start] if size == 1 else state[:, start : start + size]


def _distance(a: Floats, b: Floats) -> Floats:
    return np.sqrt(np.square(a - b).sum(axis=1))


def _new_world(grip: Floats, held: bool, object_: Floats, half: Floats, goal: Floats) -> World:
    n = len(grip)
    opening = 2 * half[:, 1] if held else np.full(n, 0.8 * MAX_OPENING, np.float32)
    return World(
        grip=grip.astype(np.float32),
        grip_velocity=np.zeros((n, 3), np.float32),
        opening=opening.astype(np.float32),
        held=np.full(n, held),
        hold_offset=(object_ - grip if held else np.zeros((n, 3))).astype(np.float32),
        object=object_.astype(np.float32),
        object_half=half.astype(np.float32),
        fall_speed=np.zeros(n, np.float32),
        goal=goal.astype(np.float32),
    )


@TASKS.register("PickCube")
class PickCube:
    """Reach the cube, grasp it, lift it into the floating ball, hold it there.

    Success is a fact of one moment that a picture shows. Speed is not asked for: a frame at the goal looks the same at
    any speed, and with a limit on it a third of the frames of an exploring policy there were failures for no visible
    reason.
    """

    name = "PickCube"
    goal_is_a_ball = True
    cube_half = 0.025
    tolerance = 0.025  # the cube's centre within this distance of the ball's

    def start(self, n: int, rng: np.random.Generator, scale: Floats) -> World:
        half = np.repeat(self.cube_half * scale[:, None], 3, axis=1)
        cube = rng.uniform(-0.10, 0.10, (n, 3))
        cube[:, 2] = half[:, 2]
        grip = rng.uniform([-0.10, -0.10, 0.14], [0.10, 0.10, 0.22], (n, 3))
        goal = rng.uniform([-0.10, -0.10, 0.12], [0.10, 0.10, 0.21], (n, 3))
        return _new_world(grip, False, cube, half, goal)

    def stop_gripper(self, world: World, before: Floats) -> None:
        """The workspace ends above the table; nothing else is in the way."""

    def allowed(self, world: World, before: Floats) -> Floats:
        return rest_on_table(world)

    def success(self, world: World) -> Bools:
        placed = _distance(world.object, world.goal) <= self.tolerance
        return placed & world.held

    def progress(self, world: World) -> Floats:
        reach = 1 - np.tanh(8 * _distance(world.grip, world.object))
        carry = world.held * (1 - np.tanh(8 * _distance(world.object, world.goal)))
        return (0.25 * reach + 0.25 * world.held + 0.5 * carry).astype(np.float32)


@TASKS.register("PegInsertion")
class PegInsertion:
    """Lower the held peg into the hole of a block. The hole is 2 mm wider than the peg on each side."""

    name = "PegInsertion"
    goal_is_a_ball = False
    peg_half = (0.010, 0.010, 0.045)
    block_half = 0.045
    block_top = 0.050
    hole_floor = 0.005
    clearance = 0.002
    chamfer = 0.004  # within this distance the rim guides the peg in
    seated = 0.012  # the peg's lower end below this height is a success

    def start(self, n: int, rng: np.random.Generator, scale: Floats) -> World:
        half = np.array(self.peg_half) * np.stack([scale, scale, np.ones_like(scale)], axis=1)
        goal = rng.uniform(-0.08, 0.08, (n, 3))
        goal[:, 2] = self.hole_floor + half[:, 2]
        # Never right over the hole: a peg that is merely dropped should not go in.
        angle, radius = rng.uniform(0, 2 * np.pi, n), rng.uniform(0.03, 0.09, n)
        aside = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        peg = goal + np.concatenate([aside, rng.uniform(0.08, 0.14, (n, 1))], axis=1)
        grip = peg + np.array([0.0, 0.0, 0.020])
        return _new_world(grip, True, peg, half, goal)

    def stop_gripper(self, world: World, before: Floats) -> None:
        lowest = self.block_top + FINGER_HALF[2] - FINGER_RISE
        inside = self.over_block(world.grip, world.goal) & (world.grip[:, 2] < lowest)
        from_above = before[:, 2] >= lowest - 1e-6
        shift = np.zeros_like(world.grip)
        shift[:, 2] = np.where(inside & from_above, lowest - world.grip[:, 2], 0)
        shift[:, :2] = np.where((inside & ~from_above)[:, None], (before - world.grip)[:, :2], 0)
        shift_gripper(world, shift)

    def over_block(self, position: Floats, goal: Floats) -> Bools:
        return np.asarray((np.abs(position - goal)[:, :2] < self.block_half).all(axis=1))

    def allowed(self, world: World, before: Floats) -> Floats:
        allowed = rest_on_table(world)
        length = world.object_half[:, 2]
        aside = allowed[:, :2] - world.goal[:, :2]
        over_block = (np.abs(aside) < self.block_half + world.object_half[:, :2]).all(axis=1)
        bottom = allowed[:, 2] - length
        below = over_block & (bottom < self.block_top)

        inside_before = self._in_hole(before, world.goal) & (before[:, 2] - length < self.block_top - 1e-4)
        from_above = before[:, 2] - length >= self.block_top - 1e-4
        enters = below & from_above & (np.abs(aside) <= self.clearance + self.chamfer).all(axis=1)
        guided = inside_before | enters
        in_hole_xy = world.goal[:, :2] + np.clip(aside, -self.clearance, self.clearance)
        allowed[:, :2] = np.where(guided[:, None], in_hole_xy, allowed[:, :2])
        allowed[:, 2] = np.where(guided, np.maximum(allowed[:, 2], self.hole_floor + length), allowed[:, 2])

        lands = below & from_above & ~guided
        allowed[:, 2] = np.where(lands, self.block_top + length, allowed[:, 2])
        hits_side = below & ~from_above & ~guided
        allowed[:, :2] = np.where(hits_side[:, None], before[:, :2], allowed[:, :2])
        return allowed

    def _in_hole(self, position: Floats, goal: Floats) -> Bools:
        aside = np.abs(position - goal)[:, :2]
        return np.asarray((aside <= self.clearance + 1e-4).all(axis=1))

    def success(self, world: World) -> Bools:
        bottom = world.object[:, 2] - world.object_half[:, 2]
        seated = (bottom >= self.hole_floor - 1e-4) & (bottom <= self.seated)
        return self._in_hole(world.object, world.goal) & seated

    def progress(self, world: World) -> Floats:
        aside = np.sqrt(np.square((world.object - world.goal)[:, :2]).sum(axis=1))
        height = np.maximum(world.object[:, 2] - world.goal[:, 2], 0)
        centred = 1 - np.tanh(20 * aside)
        lowered = (aside < 0.01) * (1 - np.tanh(8 * height))
        return (0.5 * centred + 0.5 * lowered).astype(np.float32)
