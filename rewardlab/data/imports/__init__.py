"""Recordings of others as episodes: pictures, videos, LeRobot data sets, HDF5 files, pickles. One file a kind."""
