"""Pictures: right size, only of what was asked for, and success can be seen in them."""

import numpy as np
import pytest

from rewardlab.envs.tabletop import TASKS, TabletopVectorEnv
from rewardlab.envs.tabletop.looks import Looks, Randomize, draw_looks
from rewardlab.envs.tabletop.render import render
from rewardlab.envs.tabletop.tasks import PegInsertion, PickCube


@pytest.mark.parametrize("task", list(TASKS))
@pytest.mark.parametrize("size", [(64, 64), (128, 128), (48, 80)])
def test_cameras_draw_the_environments_asked_for_at_any_size(task: str, size: tuple[int, int]) -> None:
    env = TabletopVectorEnv(task, 5, randomize=True)
    env.reset(seed=0)
    frames = env.render_cameras(("base_camera", "wrist_camera"), size, np.array([3, 1]))
    everyone = env.render_cameras(("base_camera", "wrist_camera"), size)
    for camera, pictures in frames.items():
        assert pictures.shape == (2, *size, 3)
        assert pictures.dtype == np.uint8
        assert np.array_equal(pictures, everyone[camera][[3, 1]])


def red(frame: np.ndarray) -> np.ndarray:
    r, g, b = frame[..., 0].astype(int), frame[..., 1].astype(int), frame[..., 2].astype(int)
    return (r > 110) & (g < 90) & (b < 90)


def goal_green(frame: np.ndarray) -> np.ndarray:
    r, g, b = frame[..., 0].astype(int), frame[..., 1].astype(int), frame[..., 2].astype(int)
    return (g > r + 25) & (g > b + 25)


def plain_looks() -> Looks:
    return draw_looks(1, Randomize(), np.random.default_rng(0))


def test_the_cube_is_drawn_where_it_is() -> None:
    task = PickCube()
    world = task.start(1, np.random.default_rng(0), np.ones(1, np.float32))
    world.grip[0] = (-0.1, -0.1, 0.25)
    world.goal[0] = (-0.1, 0.1, 0.2)
    columns = []
    for y in (-0.08, 0.0, 0.08):
        world.object[0] = (0, y, 0.025)
        mask = red(render(task, world, plain_looks(), "base_camera", 128, 128)[0])
        assert 60 < mask.sum() < 500
        columns.append(np.nonzero(mask)[1].mean())
    assert columns[0] < columns[1] < columns[2]  # the camera looks along -x, so +y is to the right


def test_a_cube_in_the_goal_covers_it_and_a_cube_below_does_not() -> None:
    task = PickCube()
    world = task.start(1, np.random.default_rng(0), np.ones(1, np.float32))
    world.goal[0] = (0, 0, 0.15)
    world.grip[0] = (-0.1, -0.1, 0.28)
    world.object[0] = (0, 0, 0.025)
    apart = render(task, world, plain_looks(), "base_camera", 128, 128)[0]
    world.object[0] = world.goal[0]
    placed = render(task, world, plain_looks(), "base_camera", 128, 128)[0]
    assert goal_green(placed).sum() < 0.6 * goal_green(apart).sum()


def test_the_bright_half_of_the_peg_vanishes_in_the_hole() -> None:
    task = PegInsertion()
    world = task.start(1, np.random.default_rng(0), np.ones(1, np.float32))

    def yellow(height: float) -> int:
        world.object[0] = world.goal[0]
        world.object[0, 2] = height + task.peg_half[2]
        world.grip[0] = world.object[0] + np.float32([0, 0, 0.02])
        frame = render(task, world, plain_looks(), "base_camera", 128, 128)[0].astype(int)
        return int(((frame[..., 0] > 140) & (frame[..., 1] > 110) & (frame[..., 2] < 70)).sum())

    assert yellow(0.08) > yellow(0.03) > yellow(0.005)
    assert yellow(0.005) == 0


def test_each_kind_of_randomisation_changes_the_picture() -> None:
    for option in ("light", "colors", "camera", "distractors", "object_size"):
        plain, varied = TabletopVectorEnv("PickCube", 4), TabletopVectorEnv("PickCube", 4, randomize={option: True})
        plain.reset(seed=0)
        varied.reset(seed=0)
        world, _ = varied._now
        plain._now[0].put(np.arange(4), world)  # the same scene, so that only the look differs
        if option == "object_size":
            assert len(set(world.object_half[:, 0].tolist())) == 4
        else:
            assert not np.array_equal(plain.render_cameras()["base_camera"], varied.render_cameras()["base_camera"])


def test_a_picture_does_not_depend_on_the_others_drawn_with_it() -> None:
    env = TabletopVectorEnv("PickCube", 40, randomize=True)
    env.reset(seed=11)
    rng = np.random.default_rng(11)
    for _ in range(8):
        env.step(rng.uniform(-1, 1, (40, 4)))
    together = env.render_cameras()["base_camera"]
    alone = np.concatenate([env.render_cameras(env_ids=np.array([i]))["base_camera"] for i in range(40)])
    assert np.array_equal(together, alone)
