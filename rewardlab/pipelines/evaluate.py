"""How good a trained policy is when it does its best."""

import dataclasses
from pathlib import Path

import torch

from rewardlab.config.run_checks import refuse_robot_keys
from rewardlab.devices import find_device
from rewardlab.pipelines.trained_policy import latest_checkpoint, load_policy, run_config
from rewardlab.rl.evaluation import Evaluation


def evaluate(
    run: str | Path, *, episodes: int, seed: int, device: str | torch.device = "auto"
) -> tuple[Path, dict[str, float]]:
    """The checkpoint that was judged, and mean return, length and success of its policy."""
    checkpoint = latest_checkpoint(Path(run))
    cfg = run_config(checkpoint)
    refuse_robot_keys(cfg)
    evaluation = Evaluation(dataclasses.replace(cfg.env.eval, num_envs=episodes), seed=seed)
    policy = load_policy(checkpoint, cfg, evaluation.env).to(find_device(device))
    return checkpoint, evaluation.run(policy)
