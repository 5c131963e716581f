"""Whole jobs: each reads a config, writes its results to disk and says where they are."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewardlab.pipelines.serial import serial_pipeline_reward_model_offpolicy, serial_pipeline_reward_model_onpolicy
else:

    def __getattr__(name: str) -> Any:  # when asked for: importing a pipeline imports torch and all workers
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module("rewardlab.pipelines.serial"), name)


__all__ = ["serial_pipeline_reward_model_offpolicy", "serial_pipeline_reward_model_onpolicy"]
