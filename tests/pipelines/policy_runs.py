"""Small policy runs on the built-in task, and what is read from them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from rewardlab.config import load_config
from rewardlab.pipelines import train_policy
from rewardlab.run_state import load_state
from rewardlab.workers.actor import ActorWorker

SMALL = [
    "env.train.num_envs=8",
    "env.eval.num_envs=4",
    "env.train.max_episode_steps=5",
    "env.train.image_size=[3,32,32]",
    "algorithm.ppo.rollout_steps=10",
    "algorithm.ppo.update_epochs=2",
    "actor.model.hidden_sizes=[16]",
    "actor.global_batch_size=40",
    "runner.save_interval=2",
    "runner.val_check_interval=2",
]
SMALL_ZOO = [  # for configs of the zoo, whose environments have no pictures
    "env.train.num_envs=4",
    "env.eval.num_envs=2",
    "runner.max_epochs=3",
    "algorithm.ppo.rollout_steps=8",
    "algorithm.ppo.update_epochs=1",
    "algorithm.dqn.rollout_steps=8",
    "algorithm.dqn.learning_starts=32",
    "actor.model.hidden_sizes=[8]",
    "actor.global_batch_size=16",
    "runner.val_check_interval=3",
]
SAC = [
    "algorithm.name=sac",
    "algorithm.sac.learning_starts=0",
    "algorithm.sac.rollout_steps=5",
    "algorithm.sac.utd_ratio=0.1",
    "algorithm.sac.replay_size=200",
]


def train(out: Path, *overrides: str, config: str = "tabletop_ppo_mlp") -> Path:
    where = [f"runner.logger.log_path={out.parent}", f"runner.logger.experiment_name={out.name}"]
    return train_policy.run(load_config(config, [*SMALL, *where, *overrides]))


def learned(model: Path, *more: str) -> list[str]:
    return ["reward.use_reward_model=true", f"reward.model.checkpoint_path={model}", *more]


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_state(checkpoint)[0]["policy"]
    return found


def history(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@contextmanager
def kept_actors(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ActorWorker]]:
    """The learners that runs inside make, to look at what they have stored."""
    actors: list[ActorWorker] = []
    make = ActorWorker.__init__

    def kept(self: Any, *args: Any, **settings: Any) -> None:
        actors.append(self)
        make(self, *args, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(ActorWorker, "__init__", kept)
        yield actors
