"""Visuals with few triangles: a software renderer spends most of a small picture's time on vertices."""

from typing import Any


def simplify_visuals(simulator: Any) -> None:
    """Replace the meshes of a simulator that is only drawn."""
