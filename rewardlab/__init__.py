"""Learned rewards for robots and RL agents: collect labelled episodes, train a reward model, use it, audit it.

    import rewardlab

    run = rewardlab.train_classifier("data/pickcube", "runs/classifier")
    model = run.load()                              # or rewardlab.load("runs/classifier")
    probability = model.probability(frame)          # of a camera's frame

What is not offered here is imported from its module. Importing `rewardlab` is fast: torch is imported with the first
name that needs it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewardlab.data.episodes import Episode
    from rewardlab.data.reader import StoredEpisode, read_episodes
    from rewardlab.data.writer import EpisodeWriter
    from rewardlab.envs.make import make_vec_env
    from rewardlab.errors import ConfigError, DataError, RewardlabError
    from rewardlab.python_runs import ClassifierRun, PolicyRun, train_classifier, train_policy
    from rewardlab.rewards.success_model import SuccessModel, load
else:
    _DEFINED_IN = {
        "data.episodes": ["Episode"],
        "data.reader": ["StoredEpisode", "read_episodes"],
        "data.writer": ["EpisodeWriter"],
        "envs.make": ["make_vec_env"],
        "errors": ["ConfigError", "DataError", "RewardlabError"],
        "python_runs": ["ClassifierRun", "PolicyRun", "train_classifier", "train_policy"],
        "rewards.success_model": ["SuccessModel", "load"],
    }
    _MODULES = {name: module for module, names in _DEFINED_IN.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"rewardlab.{_MODULES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "ClassifierRun",
    "ConfigError",
    "DataError",
    "Episode",
    "EpisodeWriter",
    "PolicyRun",
    "RewardlabError",
    "StoredEpisode",
    "SuccessModel",
    "load",
    "make_vec_env",
    "read_episodes",
    "train_classifier",
    "train_policy",
]
