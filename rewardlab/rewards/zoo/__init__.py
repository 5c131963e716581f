"""Reward models over transitions: novelty, imitation, preferences, hindsight; one file a family."""
