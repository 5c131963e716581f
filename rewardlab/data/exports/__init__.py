"""Data sets of other tools, written from episodes. One file a kind."""
