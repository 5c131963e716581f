"""The mechanics: a gripper, one object, a table. Every array has one row per environment.

Simple on purpose, and believable: motion is bounded and lags behind the command, a grasp needs the fingers around the
object, what is not held falls, and a finger that meets an object pushes it. Objects do not rotate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]


def vector(values: Any) -> Floats:
    """Constants in the precision of the state; float64 would double the work of a step."""
    return np.array(values, np.float32)


MAX_MOTION = 0.03  # metres a step at full command
MAX_FINGER_MOTION = 0.03
MOTION_LAG = 0.5  # share of the last velocity that survives a step
GRAVITY = 0.0245  # metres a step squared: 9.81 m/s^2 at 20 steps a second
MAX_OPENING = 0.10
RELEASE_MARGIN = 0.006  # a held object survives small opening commands, as with a real gripper's force control
WORKSPACE_LOW = vector([-0.16, -0.16, 0.015])
WORKSPACE_HIGH = vector([0.16, 0.16, 0.30])
TABLE_REACH = 0.20  # a rim keeps objects on the table

FINGER_HALF = vector([0.010, 0.006, 0.025])
FINGER_RISE = 0.010  # centre of a finger above the grasp point
PALM_BOTTOM = 0.035  # above the grasp point


@dataclass
class Rows:
    """Arrays that share their first axis, one row per environment."""

    def take(self, ids: NDArray[np.intp]) -> Self:
        return type(self)(**{f.name: getattr(self, f.name)[ids] for f in fields(self)})

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        return cls(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)})

    def put(self, ids: NDArray[np.intp], rows: Self) -> None:
        for f in fields(self):
            getattr(self, f.name)[ids] = getattr(rows, f.name)


@dataclass
class World(Rows):
    """Everything that moves. `grip` is the point between the fingertips, `opening` the gap between them."""

    grip: Floats
    grip_velocity: Floats
    opening: Floats
    held: Bools
    hold_offset: Floats  # object centre relative to the grip while held
    object: Floats
    object_half: Floats
    fall_speed: Floats
    goal: Floats  # where the object's centre should be


def move_gripper(world: World, action: Floats, rng: np.random.Generator, noise: float) -> None:
    """Move the gripper by one bounded, lagging, slightly noisy step; open or close the fingers; grasp or release."""
    command = action[:, :3] * MAX_MOTION
    velocity = MOTION_LAG * world.grip_velocity + (1 - MOTION_LAG) * command
    if noise:
        velocity += noise * rng.standard_normal(velocity.shape, dtype=np.float32)
    before = world.grip
    world.grip = np.clip(before + velocity, WORKSPACE_LOW, WORKSPACE_HIGH)
    world.grip_velocity = world.grip - before

    wanted = np.clip(world.opening + MAX_FINGER_MOTION * action[:, 3], 0.0, MAX_OPENING)
    width = 2 * world.object_half[:, 1]
    released = world.held & (wanted > width + RELEASE_MARGIN)
    world.held &= ~released
    grasped = ~world.held & ~released & (wanted <= width) & _between_fingers(world)
    world.held |= grasped
    world.hold_offset[grasped] = (world.object - world.grip)[grasped]
    world.hold_offset[grasped, 1] = 0.0  # both fingers push until the object is centred
    world.opening = np.where(world.held, width, wanted)
    world.fall_speed[world.held] = 0.0


def _between_fingers(world: World) -> Bools:
    gap = np.abs(world.object - world.grip)
    fits = gap[:, 1] <= world.opening / 2 - world.object_half[:, 1] + 0.004
    on_the_pads = gap[:, 0] <= world.object_half[:, 0]
    top = world.object[:, 2] + world.object_half[:, 2]
    bottom = world.object[:, 2] - world.object_half[:, 2]
    pad_bottom = world.grip[:, 2] + FINGER_RISE - FINGER_HALF[2]
    pad_top = world.grip[:, 2] + PALM_BOTTOM
    overlap = np.minimum(top, pad_top) - np.maximum(bottom, pad_bottom)
    return fits & on_the_pads & (overlap > 0.010)


def move_object(world: World) -> None:
    """Carry what is held, let fall what is not. What stops it (table, block) is the task's to say."""
    carried = world.grip + world.hold_offset
    world.fall_speed = np.where(world.held, 0.0, world.fall_speed + GRAVITY).astype(np.float32)
    fallen = world.object.copy()
    fallen[:, 2] -= world.fall_speed
    world.object = np.where(world.held[:, None], carried, fallen)


def stop_object_at(world: World, allowed: Floats) -> None:
    """Put the object where it is allowed to be. A gripper that holds it is stopped with it."""
    correction = allowed - world.object
    world.fall_speed[np.abs(correction[:, 2]) > 0] = 0.0
    world.object = allowed
    stopped = np.where(world.held[:, None], correction, 0.0)
    world.grip = world.grip + stopped
    world.grip_velocity = world.grip_velocity + stopped


def shift_gripper(world: World, shift: Floats) -> None:
    """Take the gripper, and what it holds, out of something it came to stand in."""
    world.grip = world.grip + shift
    world.grip_velocity = world.grip_velocity + shift
    world.object = world.object + np.where(world.held[:, None], shift, 0)


def push_by_fingers(world: World) -> None:
    """A finger inside a free object pushes it out sideways, or, coming from above, stops on top of it."""
    free = ~world.held
    for side in (-1.0, 1.0):
        finger = world.grip.copy()
        finger[:, 1] += side * (world.opening / 2 + FINGER_HALF[1])
        finger[:, 2] += FINGER_RISE
        apart = world.object - finger
        overlap = FINGER_HALF + world.object_half - np.abs(apart)
        hit = free & (overlap > 0).all(axis=1)
        if not hit.any():
            continue
        axis = overlap.argmin(axis=1)
        from_above = hit & (axis == 2) & (apart[:, 2] < 0)
        world.grip[from_above, 2] += overlap[from_above, 2]
        for k in (0, 1):
            pushed = hit & (axis == k)
            world.object[pushed, k] += (np.sign(apart) * overlap)[pushed, k]
    under_palm = free & (np.abs(world.object - world.grip)[:, :2] < world.object_half[:, :2]).all(axis=1)
    lowest = world.object[:, 2] + world.object_half[:, 2] - PALM_BOTTOM
    world.grip[:, 2] = np.where(under_palm, np.maximum(world.grip[:, 2], lowest), world.grip[:, 2])
    world.object[:, :2] = np.clip(world.object[:, :2], -TABLE_REACH, TABLE_REACH)


def rest_on_table(world: World) -> Floats:
    """The allowed position of an object over a bare table."""
    allowed = world.object.copy()
    allowed[:, 2] = np.maximum(allowed[:, 2], world.object_half[:, 2])
    return allowed
