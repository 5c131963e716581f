"""How good a trained policy is when it does its best."""

import warnings
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import torch

from rewardlab.config.robots import attach_robots
from rewardlab.devices import find_device
from rewardlab.limits import check_pixels
from rewardlab.pipelines.trained_policy import config_file, latest_checkpoint, load_policy, run_config
from rewardlab.pipelines.trusted_modules import check_modules, import_trusted
from rewardlab.rl.evaluation import Evaluation


def evaluate(
    run: str | Path,
    *,
    episodes: int,
    seed: int,
    device: str | torch.device = "auto",
    trust_modules: Sequence[str] = (),
) -> tuple[Path, dict[str, float]]:
    """The checkpoint that was judged, and mean return, length and success of its policy.

    As many environments as `env.eval.num_envs` of its config share the episodes. The run is data: `trust_modules` are
    the modules that may be imported for its environment.
    """
    checkpoint = latest_checkpoint(Path(run))
    source = config_file(checkpoint)
    cfg = run_config(checkpoint)
    cfg = attach_robots(cfg)
    env = cfg.env.eval
    check_modules(env, trust_modules, source)
    import_trusted(trust_modules)
    check_pixels(*env.frame_size, f"{source}, env.eval.image_size")
    evaluation = Evaluation(env, seed=seed, episodes=episodes)
    with closing(evaluation.env):
        policy = load_policy(checkpoint, cfg, evaluation.env).to(find_device(device))
        figures = evaluation.run(policy)
    if evaluation.unreported:
        warnings.warn(f"'{env.id}': {evaluation.unreported}, so that no share of successes is known", stacklevel=2)
    return checkpoint, figures
