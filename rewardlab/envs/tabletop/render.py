"""Draws scenes: all geometry is projected, shaded and sorted for the whole batch in NumPy, then OpenCV fills polygons.

Painter's algorithm: an axis-aligned box shows at most three faces, and two boxes that a plane separates have an order
seen from the camera. No GL and no GPU; about ten microseconds a box and picture.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

from rewardlab.envs.tabletop.camera import NEAR, View, view_of
from rewardlab.envs.tabletop.looks import Looks
from rewardlab.envs.tabletop.scene import BALL_RADIUS, Scene, build_scene
from rewardlab.envs.tabletop.tasks import Task
from rewardlab.envs.tabletop.world import Bools, Floats, World, vector

Frames = NDArray[np.uint8]

SUBPIXEL_BITS = 4
FAR_PIXEL = 8192  # keeps fixed-point coordinates of points beside the picture within OpenCV's integers
BALL_OPACITY = 0.5

# Corners of the face at +1 on each axis, as signs of the half extents; the face at -1 mirrors that axis.
_FACES = vector(
    [
        [[1, -1, -1], [1, 1, -1], [1, 1, 1], [1, -1, 1]],
        [[-1, 1, -1], [1, 1, -1], [1, 1, 1], [-1, 1, 1]],
        [[-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1]],
    ]
)


def render(task: Task, world: World, looks: Looks, camera: str, height: int, width: int) -> Frames:
    """One picture per row of `world`: uint8 [n, height, width, 3]."""
    view = view_of(camera, world, looks)
    scene = build_scene(task, world, looks, camera)
    order = _back_to_front(scene, view)
    polygons, shades, visible = _box_polygons(scene, view, looks, height, width)
    sort = order[:, :, None]
    polygons = np.take_along_axis(polygons, sort[..., None, None], axis=1)
    shades = np.take_along_axis(shades, sort[..., None], axis=1).tolist()
    drawn = np.take_along_axis(visible, sort, axis=1).tolist()
    marks = [_mark(corners, color, view, looks, height, width) for corners, color in scene.marks]
    ball = _Ball(scene, view, looks, order, height, width) if scene.ball is not None else None
    backdrop = _lit(looks.wall_color, looks).tolist()

    frames = np.empty((len(world.grip), height, width, 3), np.uint8)
    for i, frame in enumerate(frames):
        cv2.rectangle(frame, (0, 0), (width, height), backdrop[i], -1)
        for pixels, colors in marks:
            cv2.fillConvexPoly(frame, pixels[i], colors[i], cv2.LINE_AA, SUBPIXEL_BITS)
        for slot, (faces, face_shades) in enumerate(zip(drawn[i], shades[i], strict=True)):
            if ball is not None and ball.slot[i] == slot:
                ball.draw(frame, i)
            for k, shown in enumerate(faces):
                if shown:
                    cv2.fillConvexPoly(frame, polygons[i, slot, k], face_shades[k], cv2.LINE_AA, SUBPIXEL_BITS)
        if ball is not None:
            ball.draw_rim(frame, i)
    return frames


def _lit(color: Floats, looks: Looks) -> NDArray[np.uint8]:
    return np.clip(color * looks.light, 0, 255).astype(np.uint8)


def _fixed_point(pixels: Floats) -> NDArray[np.int32]:
    # OpenCV puts pixel centres at whole numbers, hence the half.
    return ((np.clip(pixels, -FAR_PIXEL, FAR_PIXEL) - 0.5) * (1 << SUBPIXEL_BITS)).astype(np.int32)


def _mark(
    corners: Floats, color: Floats, view: View, looks: Looks, height: int, width: int
) -> tuple[NDArray[np.int32], list[list[int]]]:
    pixels, _ = view.project(corners, height, width)
    return _fixed_point(pixels), _lit(color, looks).tolist()


def _box_polygons(
    scene: Scene, view: View, looks: Looks, height: int, width: int
) -> tuple[NDArray[np.int32], NDArray[np.uint8], Bools]:
    """Corners [n, B, 4, 4, 2], colours [n, B, 4, 3] and visibility [n, B, 4] of three faces and a decal a box."""
    towards_eye = view.eye[:, None] - scene.centre
    side = np.where(towards_eye >= 0, 1.0, -1.0).astype(np.float32)
    signs = _FACES[None, None] * np.where(np.eye(3, dtype=bool)[:, None], side[:, :, None, None], 1.0)
    corners = scene.centre[:, :, None, None] + signs * scene.half[:, :, None, None]
    exists = (scene.half > 0).all(axis=-1, keepdims=True)
    facing = (np.abs(towards_eye) > scene.half) & exists
    brightness = 0.62 + 0.42 * np.maximum(side * looks.sun[:, None], 0)
    colors = scene.color[:, :, None] * brightness[..., None] * looks.light[:, None, None]

    n, boxes = scene.centre.shape[:2]
    corners4 = np.concatenate([corners, np.zeros((n, boxes, 1, 4, 3), np.float32)], axis=2)
    colors4 = np.concatenate([colors, np.zeros((n, boxes, 1, 3), np.float32)], axis=2)
    visible = np.concatenate([facing, np.zeros((n, boxes, 1), bool)], axis=2)
    if scene.decal is not None:
        box, decal_corners, decal_color = scene.decal
        corners4[:, box, 3] = decal_corners
        colors4[:, box, 3] = decal_color
        visible[:, box, 3] = True
    pixels, depth = view.project(corners4, height, width)
    visible &= (depth > NEAR).all(axis=-1)
    return _fixed_point(pixels), np.clip(colors4, 0, 255).astype(np.uint8), visible


def _back_to_front(scene: Scene, view: View) -> NDArray[np.intp]:
    """Drawing order [n, B]: by how many other boxes each one stands in front of."""
    low, high = scene.centre - scene.half, scene.centre + scene.half
    eye = view.eye[:, None, None]
    # Along an axis on which box a lies wholly above b, a is in front if the eye is above b's upper side.
    above = low[:, :, None] >= high[:, None] - 1e-6
    a_in_front: Bools = np.asarray((above & (eye > high[:, None])).any(axis=-1))
    b_in_front: Bools = np.asarray((above & (eye <= high[:, None])).any(axis=-1))
    exists = np.asarray((scene.half > 0).all(axis=-1))
    front = (a_in_front | b_in_front.transpose(0, 2, 1)) & exists[:, :, None] & exists[:, None]
    wins = front.sum(axis=2) - front.sum(axis=1)
    distance = np.sqrt(np.square(scene.centre - view.eye[:, None]).sum(axis=-1))
    return np.argsort(wins - 1e-3 * distance, axis=1, kind="stable")


class _Ball:
    """The goal of PickCube: a translucent ball behind whatever is inside it, and a rim in front."""

    def __init__(
        self, scene: Scene, view: View, looks: Looks, order: NDArray[np.intp], height: int, width: int
    ) -> None:
        assert scene.ball is not None
        pixel, depth = view.project(scene.ball, height, width)
        radius = view.focal * height * BALL_RADIUS / np.maximum(depth, NEAR)
        self.hidden = (depth < 2 * BALL_RADIUS).tolist()
        self.centre = _fixed_point(pixel).tolist()
        self.radius = (radius * (1 << SUBPIXEL_BITS)).astype(int).tolist()
        self.color = _lit(looks.goal_color, looks).tolist()
        low = np.maximum(np.floor(pixel - radius[:, None]) - 1, 0)
        high = np.minimum(np.ceil(pixel + radius[:, None]) + 2, [width, height])
        self.window = np.concatenate([low, np.maximum(high, low)], axis=1).astype(int).tolist()
        self.slot = _first_in_front(scene, view, order).tolist()

    def draw(self, frame: Frames, i: int) -> None:
        x0, y0, x1, y1 = self.window[i]
        if self.hidden[i] or x0 >= x1 or y0 >= y1:
            return
        patch = frame[y0:y1, x0:x1]
        opaque = patch.copy()
        x, y = self.centre[i]
        one = 1 << SUBPIXEL_BITS
        cv2.circle(opaque, (x - x0 * one, y - y0 * one), self.radius[i], self.color[i], -1, cv2.LINE_AA, SUBPIXEL_BITS)
        cv2.addWeighted(opaque, BALL_OPACITY, patch, 1 - BALL_OPACITY, 0, dst=patch)

    def draw_rim(self, frame: Frames, i: int) -> None:
        if not self.hidden[i]:
            cv2.circle(frame, self.centre[i], self.radius[i], self.color[i], 1, cv2.LINE_AA, SUBPIXEL_BITS)


def _first_in_front(scene: Scene, view: View, order: NDArray[np.intp]) -> NDArray[np.intp]:
    """The first drawing slot whose box hides the ball or is inside it: the ball is drawn just before."""
    assert scene.ball is not None
    towards = view.eye - scene.ball
    direction = towards / np.sqrt(np.square(towards).sum(axis=1, keepdims=True))
    nearer = ((scene.centre - scene.ball[:, None]) * direction[:, None]).sum(axis=-1) > -BALL_RADIUS / 2
    in_front = np.take_along_axis(nearer & (scene.half > 0).all(axis=-1), order, axis=1)
    return np.where(in_front.any(axis=1), in_front.argmax(axis=1), in_front.shape[1])
