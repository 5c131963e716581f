"""From the state of the world to the boxes and ground marks that a camera would see."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rewardlab.envs.tabletop.looks import Looks
from rewardlab.envs.tabletop.tasks import PegInsertion, PickCube, Task
from rewardlab.envs.tabletop.world import FINGER_HALF, FINGER_RISE, PALM_BOTTOM, Floats, World, vector

AddBox = Callable[[Floats, Floats, Floats], None]  # centre, half extents, colour; one row or one for all

BALL_RADIUS = 0.042
METAL = vector([72, 76, 84])
RUBBER = vector([225, 225, 228])
PEG_TIP = vector([250, 205, 40])
HOLE = vector([18, 18, 20])


@dataclass
class Scene:
    """`n` pictures: boxes [n, B, 3] to be sorted by depth, marks painted on the ground in order, and perhaps a ball."""

    centre: Floats
    half: Floats
    color: Floats
    marks: list[tuple[Floats, Floats]]  # (corners [n, K, 3], colour [n, 3])
    decal: tuple[int, Floats, Floats] | None  # painted on top of this box: (index, corners [n, 4, 3], colour)
    ball: Floats | None


def build_scene(task: Task, world: World, looks: Looks, camera: str) -> Scene:
    boxes: list[tuple[Floats, Floats, Floats]] = []

    def add(centre: Floats, half: Floats, color: Floats) -> None:
        boxes.append(np.broadcast_arrays(centre, half, color))  # type: ignore[arg-type]

    decal = None
    marks = _ground(looks)
    if isinstance(task, PegInsertion):
        block_half = vector([task.block_half, task.block_half, task.block_top / 2])
        hole = _square(world.goal, world.object_half[:, :2] + task.clearance, height=task.block_top)
        decal = (0, hole, np.broadcast_to(HOLE, world.goal.shape))
        add(_at_height(world.goal, task.block_top / 2), block_half, looks.wall_color * 0.55 + 100)
        _add_peg(task, world, looks, add)
        shadow_height = np.where(task.over_block(world.object, world.goal), task.block_top, 0.0)
    elif isinstance(task, PickCube):
        add(world.object, world.object_half, looks.object_color)
        marks.append((_disc(world.goal, BALL_RADIUS), 0.55 * looks.goal_color + 0.45 * looks.table_color))
        shadow_height = np.zeros(len(world.goal))
    else:
        raise NotImplementedError(f"nobody has said yet what {task.name} looks like")
    shadow = looks.table_color * 0.38
    marks.append((_square(world.object, world.object_half[:, :2], shadow_height), shadow))
    _add_gripper(world, camera, add)
    for k in np.flatnonzero(looks.distractor_half.any(axis=(0, 2))):
        add(looks.distractor[:, k], looks.distractor_half[:, k], looks.distractor_color[:, k])
    centre, half, color = (np.stack(part, axis=1).astype(np.float32) for part in zip(*boxes, strict=True))
    return Scene(centre, half, color, marks, decal, world.goal if task.goal_is_a_ball else None)


def _ground(looks: Looks) -> list[tuple[Floats, Floats]]:
    origin = np.zeros((len(looks.table_color), 3), np.float32)
    table = _square(origin, vector([0.32, 0.32]), 0.0)
    mat = _square(origin, vector([0.18, 0.18]), 0.0)
    return [(table, looks.table_color), (mat, looks.table_color * 0.84)]


def _add_gripper(world: World, camera: str, add: AddBox) -> None:
    up = vector([0, 0, 1])
    for side in (-1.0, 1.0):
        across = np.zeros_like(world.grip)
        across[:, 1] = side * (world.opening / 2 + FINGER_HALF[1])
        add(world.grip + across + FINGER_RISE * up, FINGER_HALF, RUBBER)
    if camera != "wrist_camera":  # the wrist camera sits on the palm and does not see it
        add(world.grip + (PALM_BOTTOM + 0.012) * up, vector([0.018, 0.060, 0.012]), METAL)
        add(world.grip + (PALM_BOTTOM + 0.024 + 0.15) * up, vector([0.014, 0.014, 0.15]), METAL * 1.35)


def _add_peg(task: PegInsertion, world: World, looks: Looks, add: AddBox) -> None:
    """The peg's lower half is bright: it vanishes in the hole, so that a person sees how deep the peg sits."""
    top = world.object[:, 2] + world.object_half[:, 2]
    bottom = world.object[:, 2] - world.object_half[:, 2]
    # Painting back to front cannot show one box inside another: cut the peg where it enters the block.
    bottom = np.where(task.over_block(world.object, world.goal), np.maximum(bottom, task.block_top), bottom)
    middle = np.clip(world.object[:, 2], bottom, top)
    for low, high, color in (
        (middle, top, looks.object_color),
        (bottom, middle, np.broadcast_to(PEG_TIP, world.goal.shape)),
    ):
        half = world.object_half.copy()
        half[:, 2] = (high - low) / 2
        add(_at_height(world.object, (low + high) / 2), half, color)


def _at_height(position: Floats, height: Floats | float) -> Floats:
    moved = position.copy()
    moved[:, 2] = height
    return moved


def _square(centre: Floats, half_xy: Floats, height: Floats | float) -> Floats:
    corners = vector([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    half = np.broadcast_to(half_xy, (len(centre), 2))
    square = np.empty((len(centre), 4, 3), np.float32)
    square[..., :2] = centre[:, None, :2] + corners * half[:, None]
    square[..., 2] = np.broadcast_to(height, len(centre))[:, None]
    return square


def _disc(centre: Floats, radius: float) -> Floats:
    angle = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    disc = np.zeros((len(centre), 12, 3), np.float32)
    disc[..., :2] = centre[:, None, :2] + radius * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return disc
