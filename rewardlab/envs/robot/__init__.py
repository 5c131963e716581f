"""Robots behind one small protocol, with limits, cameras and a simulated server."""
