"""Figures that say how far a success classifier can be trusted. Plain NumPy: no network, no files."""
