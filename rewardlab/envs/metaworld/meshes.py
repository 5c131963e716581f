"""Fewer triangles for small pictures: the robot has 67,000, which a picture of 64x64 cannot show."""

from typing import Any

import numpy as np

LARGE = 1000  # triangles; meshes with fewer keep them all


def merging_distance(size: tuple[int, int]) -> float:
    """Return the size in metres below which no detail is drawn: at most a pixel of a camera one metre away; 0: all."""
    pixels = max(size)
    return 0.01 if pixels <= 64 else 0.005 if pixels <= 128 else 0.0


def merge_vertices(model: Any, distance: float) -> None:
    """Merge all vertices of a large mesh that lie in one cell of a grid. Only for a model that nothing simulates."""
    for number in np.flatnonzero(model.mesh_facenum >= LARGE):
        start, count = model.mesh_vertadr[number], model.mesh_vertnum[number]
        cells = np.floor(model.mesh_vert[start : start + count] / distance).astype(np.int64)
        _, first, cell = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        begin = model.mesh_faceadr[number]
        end = begin + model.mesh_facenum[number]
        faces = first[cell.reshape(-1)][model.mesh_face[begin:end]]
        kept = (faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 0] != faces[:, 2])
        model.mesh_face[begin:end][: kept.sum()] = faces[kept]
        for name in ("mesh_facenormal", "mesh_facetexcoord"):
            corners = getattr(model, name)[begin:end]
            corners[: kept.sum()] = corners[kept]
        model.mesh_facenum[number] = kept.sum()
