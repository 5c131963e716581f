"""Rotations and poses in float32 NumPy, with operations in ManiSkill's order so that results have the same bits."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

Floats: TypeAlias = npt.NDArray[np.float32]
Pose: TypeAlias = tuple[Floats, Floats]  # position [3] and quaternion [4], real part first

_TERMS = np.array([[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]])
_SIGNS = np.array([[1, 1, 1, 1], [-1, 1, -1, 1], [-1, 1, 1, -1], [-1, -1, 1, 1]], np.float32)
_DIAGONAL_SIGNS = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], np.float32)
_CONJUGATE = np.array([1, -1, -1, -1], np.float32)


def multiply(first: Floats, second: Floats) -> Floats:
    """Return the product of two quaternions, added up in the order that ManiSkill adds."""
    terms = first[:, None] * (second[_TERMS] * _SIGNS)
    product: Floats = terms[0] + terms[1] + terms[2] + terms[3]
    return product


def rotate(rotation: Floats, point: Floats) -> Floats:
    """Return a point turned by a quaternion."""
    as_quaternion = np.concatenate((np.zeros(1, np.float32), point))
    return multiply(multiply(rotation, as_quaternion), rotation * _CONJUGATE)[1:]


def nonnegative(rotation: Floats) -> Floats:
    """Return the same rotation with a real part that is not negative."""
    return -rotation if rotation[0] < 0 else rotation


def relative_pose(frame: Pose, pose: Pose) -> Pose:
    """Return a pose as seen from a frame."""
    back = frame[1] * _CONJUGATE
    position = rotate(back, -frame[0]) + rotate(back, pose[0])
    return position, nonnegative(multiply(back, pose[1]))


def quaternion_of_angles(angles: Floats) -> Floats:
    """Return the quaternion of turns about x, y and z."""
    # Sines, roots and matrix products are torch's: NumPy's differ in the last bit, of which an IK solver makes more.
    (cx, cy, cz), (sx, sy, sz) = (part(torch.from_numpy(angles)).tolist() for part in (torch.cos, torch.sin))
    x = [[1, 0, 0], [0, cx, -sx], [0, sx, cx]]
    y = [[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]]
    z = [[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]]
    matrices = torch.from_numpy(np.array([[x], [y], [z]], np.float32))
    return quaternion_of_matrix(torch.matmul(torch.matmul(matrices[0], matrices[1]), matrices[2])[0].numpy())


def quaternion_of_matrix(matrix: Floats) -> Floats:
    """Return the quaternion of a rotation matrix; of the four ways to compute it, the best conditioned one."""
    diagonal = _DIAGONAL_SIGNS * np.diagonal(matrix)
    squares = 1 + diagonal[:, 0] + diagonal[:, 1] + diagonal[:, 2]
    sizes = torch.sqrt(torch.from_numpy(np.maximum(squares, 0))).numpy()
    best = int(sizes.argmax())
    (_, m01, m02), (m10, _, m12), (m20, m21, _) = matrix
    square = sizes[best] * sizes[best]
    rows = (
        (square, m21 - m12, m02 - m20, m10 - m01),
        (m21 - m12, square, m10 + m01, m02 + m20),
        (m02 - m20, m10 + m01, square, m12 + m21),
        (m10 - m01, m20 + m02, m21 + m12, square),
    )
    return nonnegative(np.array(rows[best], np.float32) / (2 * sizes[best]))
