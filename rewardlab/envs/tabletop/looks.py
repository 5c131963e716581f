"""What an episode looks like: colours, light, camera pose, scenery. Drawn anew at each reset when randomised."""

from dataclasses import dataclass

import numpy as np

from rewardlab.envs.tabletop.world import Floats, Rows

MAX_DISTRACTORS = 4


@dataclass(frozen=True)
class Randomize:
    """Which parts of the look change from episode to episode. All off: every episode looks alike."""

    light: bool = False
    colors: bool = False
    camera: bool = False
    distractors: bool = False
    object_size: bool = False


@dataclass
class Looks(Rows):
    """One row per environment. Colours are RGB in 0-255."""

    object_color: Floats
    goal_color: Floats
    table_color: Floats
    wall_color: Floats
    light: Floats  # gain per colour channel
    sun: Floats  # direction towards the light, unit length
    eye_shift: Floats  # metres added to the base camera's position
    aim_shift: Floats  # metres added to the point it looks at
    distractor: Floats  # [n, D, 3] centres
    distractor_half: Floats  # zero: absent
    distractor_color: Floats


def draw_looks(n: int, randomize: Randomize, rng: np.random.Generator) -> Looks:
    """The looks of `n` new episodes."""

    def fixed(*values: float) -> Floats:
        return np.tile(np.array(values, np.float32), (n, 1))

    def jittered(base: Floats, spread: float) -> Floats:
        return np.clip(base + rng.uniform(-spread, spread, base.shape), 15, 245).astype(np.float32)

    looks = Looks(
        object_color=fixed(205, 52, 44),
        goal_color=fixed(70, 200, 90),
        table_color=fixed(176, 162, 142),
        wall_color=fixed(92, 100, 112),
        light=fixed(1, 1, 1),
        sun=fixed(0.42, -0.30, 0.86),
        eye_shift=fixed(0, 0, 0),
        aim_shift=fixed(0, 0, 0),
        distractor=np.zeros((n, MAX_DISTRACTORS, 3), np.float32),
        distractor_half=np.zeros((n, MAX_DISTRACTORS, 3), np.float32),
        distractor_color=np.zeros((n, MAX_DISTRACTORS, 3), np.float32),
    )
    if randomize.light:
        gain = rng.uniform(0.65, 1.15, (n, 1)) * rng.uniform(0.92, 1.08, (n, 3))
        looks.light = gain.astype(np.float32)
        sun = rng.uniform([-0.8, -0.8, 0.5], [0.8, 0.8, 1.0], (n, 3))
        looks.sun = (sun / np.linalg.norm(sun, axis=1, keepdims=True)).astype(np.float32)
    if randomize.colors:
        looks.object_color = jittered(looks.object_color, 35)
        looks.goal_color = jittered(looks.goal_color, 25)
        looks.table_color = jittered(looks.table_color, 35)
        looks.wall_color = jittered(looks.wall_color, 50)
    if randomize.camera:
        looks.eye_shift = rng.uniform(-0.05, 0.05, (n, 3)).astype(np.float32)
        looks.aim_shift = rng.uniform(-0.02, 0.02, (n, 3)).astype(np.float32)
    if randomize.distractors:
        _place_distractors(looks, n, rng)
    return looks


def _place_distractors(looks: Looks, n: int, rng: np.random.Generator) -> None:
    """Boxes on the far edge and the left and right edges of the table: scenery, out of the gripper's reach."""
    shape = (n, MAX_DISTRACTORS)
    half = rng.uniform(0.010, 0.030, (*shape, 3))
    at_the_back = rng.random(shape) < 0.5
    x = np.where(at_the_back, rng.uniform(-0.28, -0.22, shape), rng.uniform(-0.20, 0.05, shape))
    y = np.where(
        at_the_back, rng.uniform(-0.26, 0.26, shape), rng.choice([-1, 1], shape) * rng.uniform(0.22, 0.28, shape)
    )
    centre = np.stack([x, y, half[..., 2]], axis=-1)
    present = rng.random(shape) < 0.6
    looks.distractor[present] = centre[present]
    looks.distractor_half[present] = half[present]
    looks.distractor_color[:] = rng.uniform(30, 230, (*shape, 3))
