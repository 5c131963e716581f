"""Meshes with fewer triangles keep their form."""

import numpy as np

from rewardlab.envs.maniskill.visuals import merge_vertices


def grid(cells: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A square of side 1 in the plane z = 2, facing up, with its own coordinates as texture coordinates."""
    x, y = np.meshgrid(np.linspace(0, 1, cells + 1), np.linspace(0, 1, cells + 1), indexing="ij")
    vertices = np.stack([x.ravel(), y.ravel(), np.full(x.size, 2.0)], 1).astype(np.float32)
    corner = (np.arange(cells)[:, None] * (cells + 1) + np.arange(cells)).ravel()
    right, up = corner + cells + 1, corner + 1
    triangles = np.concatenate([np.stack([corner, right, up], 1), np.stack([right, right + 1, up], 1)])
    normals = np.tile(np.array([0, 0, 1], np.float32), (len(vertices), 1))
    return vertices, triangles.astype(np.uint32), normals, vertices[:, :2].copy()


def area(vertices: np.ndarray, triangles: np.ndarray) -> float:
    a, b, c = (vertices[triangles[:, k]] for k in range(3))
    return float(np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() / 2)


def test_a_plane_stays_a_plane_with_its_texture() -> None:
    whole = grid(60)
    vertices, triangles, normals, uvs = merge_vertices(*whole, cells=12)
    assert len(triangles) < len(whole[1]) / 20
    assert np.allclose(vertices[:, 2], 2)
    assert np.allclose(normals, [0, 0, 1])
    assert np.allclose(uvs, vertices[:, :2], atol=1e-6)
    assert 0.8 < area(vertices, triangles) <= 1


def test_two_faces_that_meet_keep_their_normals_and_have_no_gap() -> None:
    top = grid(60)
    side = tuple(array.copy() for array in top)
    side[0][:] = np.stack([np.ones(len(top[0])), top[0][:, 1], 1 + top[0][:, 0]], 1)  # x = 1, from z = 1 to z = 2
    side[2][:] = [1, 0, 0]
    joined = (
        np.concatenate([top[0], side[0]]),
        np.concatenate([top[1], side[1] + len(top[0])]).astype(np.uint32),
        np.concatenate([top[2], side[2]]),
        np.concatenate([top[3], side[3]]),
    )
    vertices, triangles, normals, _ = merge_vertices(*joined, cells=12)
    assert {tuple(normal) for normal in normals.round(3)} == {(0, 0, 1), (1, 0, 0)}
    up = {tuple(point) for point in vertices[normals[:, 2] > 0.5].round(4)}
    sideways = {tuple(point) for point in vertices[normals[:, 0] > 0.5].round(4)}
    assert len(up & sideways) > 10  # positions along the edge, shared by both faces
    assert triangles.max() < len(vertices)
