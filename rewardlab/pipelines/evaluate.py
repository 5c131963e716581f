"""A trained policy from its checkpoint, doing its best."""

import dataclasses
from pathlib import Path

from torch import nn

from rewardlab.config import ExperimentConfig, load_config
from rewardlab.envs import make_vec_env
from rewardlab.errors import DataError
from rewardlab.rl.evaluation import Evaluation
from rewardlab.rl.make import make_policy_network
from rewardlab.training.run_state import load_state


def evaluate(run: str | Path, *, episodes: int, seed: int) -> tuple[Path, dict[str, float]]:
    """The checkpoint that was judged, and mean return, length and success of its policy."""
    checkpoint = latest_checkpoint(Path(run))
    cfg = run_config(checkpoint)
    evaluation = Evaluation(dataclasses.replace(cfg.env.eval, num_envs=episodes), seed=seed)
    return checkpoint, evaluation.run(load_policy(checkpoint, cfg))


def latest_checkpoint(run: Path) -> Path:
    """The checkpoint itself, or the newest of a run."""
    if run.name.startswith("global_step_"):
        return run
    found = [path for path in (run / "checkpoints").glob("global_step_*") if path.name[12:].isdigit()]
    if not found:
        raise DataError(f"{run}: no checkpoints/global_step_<number> there; expected the directory of a policy run")
    return max(found, key=lambda path: int(path.name[12:]))


def run_config(checkpoint: Path) -> ExperimentConfig:
    path = checkpoint.parent.parent / "config.yaml"
    if not path.is_file():
        raise DataError(f"{checkpoint}: no {path} beside it; expected a checkpoint in the directory of its run")
    return load_config(str(path), check_files=False)


def load_policy(checkpoint: Path, cfg: ExperimentConfig) -> nn.Module:
    """The policy of a checkpoint, as it would act."""
    env = make_vec_env(dataclasses.replace(cfg.env.train, num_envs=1))
    policy = make_policy_network(cfg, env.single_observation_space, env.single_action_space)
    env.close()
    policy.load_state_dict(load_state(checkpoint)[0]["policy"])
    return policy.eval().requires_grad_(False)
