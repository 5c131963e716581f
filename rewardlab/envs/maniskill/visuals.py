"""Visuals with few triangles: a software renderer spends most of a small picture's time on vertices.

A robot of ManiSkill has some 140,000 triangles and its floor 20,000, for pictures of 128x128.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float32]  # [n, 2 or 3]
Triangles = npt.NDArray[np.uint32]  # [n, 3]: rows of points

KEPT_TRIANGLES = 1_000  # meshes of so few are kept as they are
FEWEST = 50  # triangles that a mesh must keep
CELLS = 12  # along the longest side of a mesh


def simplify_visuals(scene: Any) -> None:
    """Replace the large meshes of a scene (of SAPIEN) that is only drawn by meshes of the same form and colours."""
    import sapien

    for body in list(scene.render_system.render_bodies):
        meshes = [shape for shape in body.render_shapes if isinstance(shape, sapien.render.RenderShapeTriangleMesh)]
        if any(len(part.triangles) > KEPT_TRIANGLES for mesh in meshes for part in mesh.parts):
            entity = body.entity
            entity.remove_component(body)
            entity.add_component(_simplified_body(body))


def _simplified_body(body: Any) -> Any:
    import sapien

    simplified = sapien.render.RenderBodyComponent()
    for shape in body.render_shapes:
        if not isinstance(shape, sapien.render.RenderShapeTriangleMesh):
            simplified.attach(shape.clone())
            continue
        for part in shape.parts:
            arrays = (part.vertices * shape.scale, part.triangles, part.get_vertex_normal(), part.get_vertex_uv())
            cells, whole = CELLS, arrays
            while len(whole[1]) > KEPT_TRIANGLES and len((arrays := merge_vertices(*whole, cells=cells))[1]) < FEWEST:
                cells *= 2  # many small pieces, such as screws, that one cell would swallow
            vertices, triangles, normals, uvs = arrays
            mesh = sapien.render.RenderShapeTriangleMesh(
                vertices=vertices, triangles=triangles, normals=normals, uvs=uvs, material=part.material
            )
            mesh.local_pose = shape.local_pose
            simplified.attach(mesh)
    simplified.visibility = body.visibility
    return simplified


def merge_vertices(
    vertices: Points, triangles: Triangles, normals: Points, uvs: Points, cells: int
) -> tuple[Points, Triangles, Points, Points]:
    """Move the vertices in each cell of a grid to their mean, and merge those that face the same way.

    The grid has `cells` cells along the longest side. Vertices of a cell that face other ways keep their own normals,
    so that edges stay sharp; they share a position, so that there are no gaps.
    """
    low, high = vertices.min(0), vertices.max(0)
    size = max(float((high - low).max()) / cells, 1e-9)
    place = np.floor((vertices - low) / size).astype(np.int64) @ np.array([(cells + 1) ** 2, cells + 1, 1])
    _, cell = np.unique(place, return_inverse=True)
    axis = np.abs(normals).argmax(1)
    facing = 2 * axis + (np.take_along_axis(normals, axis[:, None], 1)[:, 0] > 0)
    _, first, merged = np.unique(cell * 6 + facing, return_index=True, return_inverse=True)
    corners = np.sort(cell[triangles], 1)
    has_area = (corners[:, 0] != corners[:, 1]) & (corners[:, 1] != corners[:, 2])
    kept = merged[triangles[has_area]]
    _, once = np.unique(np.sort(kept, 1), axis=0, return_index=True)
    mean_normals = _group_means(normals, merged)
    mean_normals /= np.maximum(np.linalg.norm(mean_normals, axis=1, keepdims=True), 1e-9)
    positions = _group_means(vertices, cell)[cell[first]]
    return positions, kept[np.sort(once)].astype(np.uint32), mean_normals, _group_means(uvs, merged)


def _group_means(values: Points, groups: npt.NDArray[np.int64]) -> Points:
    """Return the mean of the rows of each group, [groups, columns]."""
    columns = [np.bincount(groups, values[:, column]) for column in range(values.shape[1])]
    return (np.stack(columns, 1) / np.bincount(groups)[:, None]).astype(np.float32)
