"""Whole jobs: each reads a config, writes its results to disk and says where they are."""
