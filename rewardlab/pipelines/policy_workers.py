"""The workers of a policy run, launched as its config says."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from rewardlab.config import ExperimentConfig
from rewardlab.config.schema import EnvConfig
from rewardlab.errors import ConfigError
from rewardlab.pipelines.policy_rewards import PolicyRewards
from rewardlab.rl.evaluation import Evaluation
from rewardlab.rl.make import make_policy_network
from rewardlab.workers.actor import ActorWorker
from rewardlab.workers.cluster import Cluster, Seat
from rewardlab.workers.env import EnvWorker
from rewardlab.workers.group import Group, Worker
from rewardlab.workers.reward import RewardWorker
from rewardlab.workers.rollout import Lanes, RolloutWorker
from rewardlab.workers.threads import threads_of_a_large_network


@dataclass(frozen=True)
class PolicyWorkers:
    """All that a training loop calls."""

    rewards: PolicyRewards
    envs: Group
    lanes: Lanes
    actor: Worker  # the learner
    evaluation: Evaluation
    evaluated_policy: nn.Module


def launch_workers(cfg: ExperimentConfig, cluster: Cluster, out: Path, expert_data: Any = None) -> PolicyWorkers:
    """Launch reward workers, environments, learner and policies, in this order: each needs what came before."""
    rewards = PolicyRewards(cfg, cluster, out)
    envs = _launch_envs(cfg, cluster, rewards)
    task = envs[0].submit("spaces").result()
    threads = cfg.actor.threads or (threads_of_a_large_network() if cfg.actor.model.kind == "cnn" else 1)
    actors = cluster.launch("actor", lambda seat: ActorWorker(cfg, *task, threads=threads), name="ActorGroup", count=1)
    policies = cluster.launch(
        "rollout",
        lambda seat: RolloutWorker(make_policy_network(cfg, *task), task[1], seed=_seed(cfg, 1, seat)),
        name="RolloutGroup",
        count=len(envs),
    )
    rewards.bind(cluster, actors[0], envs, task, expert_data)
    if cfg.algorithm.name == "sac" and cfg.algorithm.sac.demo_path is not None:
        actors[0].submit("load_demonstrations").result()
    return PolicyWorkers(
        rewards,
        envs,
        Lanes(envs, policies, rewards.scorers),
        actors[0],
        Evaluation(cfg.env.eval, seed=cfg.seed + 10_000),
        make_policy_network(cfg, *task),
    )


def _launch_envs(cfg: ExperimentConfig, cluster: Cluster, rewards: PolicyRewards) -> Group:
    collection = cfg.data.collection if cfg.data.collection.enabled else None
    request, keep_next = rewards.frame_request, rewards.needs_next_observations

    def make(seat: Seat) -> EnvWorker:
        return EnvWorker(
            _share(cfg.env.train, seat),
            seed=_seed(cfg, 0, seat),
            frames=request,
            ending=RewardWorker(cfg.reward, names=rewards.ending) if rewards.ending else None,
            collection=collection,
            keep_next=keep_next,
        )

    return cluster.launch("env", make, name="EnvGroup")


def _seed(cfg: ExperimentConfig, stream: int, seat: Seat) -> int:
    """Environments and policies use independent random streams, one for each worker."""
    return int(np.random.SeedSequence([cfg.seed, stream, seat.index]).generate_state(1)[0])


def _share(env: EnvConfig, seat: Seat) -> EnvConfig:
    if env.num_envs < seat.count:
        raise ConfigError(
            f"env.train.num_envs: found {env.num_envs}, expected at least cluster.workers.env={seat.count}"
        )
    first, last = (env.num_envs * edge // seat.count for edge in (seat.index, seat.index + 1))
    return replace(env, num_envs=last - first)
