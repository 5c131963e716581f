"""Launches the workers of a policy run, as its config says."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from rewardlab.config import ExperimentConfig
from rewardlab.config.robots import is_robot
from rewardlab.config.schema import EnvConfig
from rewardlab.cores import sharing_cores
from rewardlab.envs.closing import closed_after_errors
from rewardlab.errors import ConfigError
from rewardlab.pipelines.policy_rewards import PolicyRewards
from rewardlab.rl.evaluation import Evaluation
from rewardlab.rl.make import make_policy_network
from rewardlab.workers.actor import ActorWorker
from rewardlab.workers.async_learner import AsyncLearner
from rewardlab.workers.cluster import Cluster, WorkerPlacement
from rewardlab.workers.env import EnvWorker
from rewardlab.workers.group import Group, Worker
from rewardlab.workers.reward import RewardWorker
from rewardlab.workers.rollout import Lanes, RolloutWorker
from rewardlab.workers.threads import default_torch_threads


@dataclass(frozen=True)
class PolicyWorkers:
    """The workers that the training loop calls."""

    rewards: PolicyRewards
    envs: Group
    lanes: Lanes
    actor: Worker  # the learner
    evaluation: Evaluation | None  # None on robots, which cannot do two things at once
    evaluated_policy: nn.Module


def launch_workers(cfg: ExperimentConfig, cluster: Cluster, out: Path, expert_data: Any = None) -> PolicyWorkers:
    """Launch the reward workers, environment workers, learner and rollout workers; each needs the ones before it."""
    rewards = PolicyRewards(cfg, cluster, out)
    envs = _launch_envs(cfg, cluster, rewards)
    with closed_after_errors(lambda: envs.call("close").result()):
        return _launch_others(cfg, cluster, rewards, envs, expert_data)


def _launch_others(
    cfg: ExperimentConfig, cluster: Cluster, rewards: PolicyRewards, envs: Group, expert_data: Any
) -> PolicyWorkers:
    """Launch the learner and the rollout workers, for the spaces that the environments have."""
    task = envs[0].submit("spaces").result()
    acting = cfg.algorithm.asynchronous.enabled  # at the same time as learning, on a core of its own
    threads = cfg.actor.threads
    if threads is None:
        threads = max(1, default_torch_threads() - acting) if cfg.actor.model.kind == "cnn" else 1

    def make_learner(placement: WorkerPlacement) -> ActorWorker | AsyncLearner:
        make = partial(ActorWorker, cfg, *task, threads=threads, device=placement.device)
        return AsyncLearner(make, cfg.algorithm.asynchronous.publish_interval) if acting else make()

    actors = cluster.launch(
        "actor", make_learner, name="ActorGroup", count=1, own_process=acting, threads=threads if acting else 1
    )
    policies = cluster.launch(
        "rollout",
        lambda placement: RolloutWorker(
            make_policy_network(cfg, *task).to(placement.device), task[1], seed=_seed(cfg, 1, placement)
        ),
        name="RolloutGroup",
        count=len(envs),
    )
    rewards.bind(cluster, actors[0], envs, task, expert_data)
    if cfg.algorithm.name == "sac" and cfg.algorithm.sac.demo_path is not None:
        actors[0].submit("load_demonstrations").result()
    return PolicyWorkers(
        rewards,
        envs,
        Lanes(envs, policies, rewards.scorers, collecting=cfg.data.collection.enabled),
        actors[0],
        None
        if is_robot(cfg.env.train)
        else Evaluation(cfg.env.eval, seed=cfg.seed + 10_000, episodes=cfg.runner.eval_episodes),
        make_policy_network(cfg, *task).to(cluster.driver_device("rollout")),
    )


def _launch_envs(cfg: ExperimentConfig, cluster: Cluster, rewards: PolicyRewards) -> Group:
    collection = cfg.data.collection if cfg.data.collection.enabled else None
    request, detectors, keep_next = rewards.frame_request, rewards.success_detectors, rewards.needs_next_observations

    def make_detector(placement: WorkerPlacement) -> RewardWorker:
        # The reward workers write debug images of the same frames.
        return RewardWorker(cfg.reward, placement.device, names=detectors, debug_images=False)

    def make(placement: WorkerPlacement) -> EnvWorker:
        # In one process, workers work one after the other; on Ray at the same time.
        with sharing_cores(placement.count if cfg.cluster.backend == "ray" else 1):
            return EnvWorker(
                _worker_share(cfg.env.train, placement),
                seed=_seed(cfg, 0, placement),
                frames=request,
                success_detector=make_detector(placement) if detectors else None,
                collection=collection,
                keep_next=keep_next,
                keep_tensors=cfg.cluster.backend == "local",  # tensors do not cross processes
                index=placement.index,
            )

    return cluster.launch("env", make, name="EnvGroup")


def _seed(cfg: ExperimentConfig, stream: int, placement: WorkerPlacement) -> int:
    """Return the seed of a worker. Environments and policies use independent RNG streams (0 and 1)."""
    return int(np.random.SeedSequence([cfg.seed, stream, placement.index]).generate_state(1)[0])


def _worker_share(env: EnvConfig, placement: WorkerPlacement) -> EnvConfig:
    if env.num_envs < placement.count:
        raise ConfigError(
            f"env.train.num_envs: found {env.num_envs}, expected at least cluster.workers.env={placement.count}"
        )
    first, last = (env.num_envs * edge // placement.count for edge in (placement.index, placement.index + 1))
    options = env.options
    if is_robot(env):
        options = {**options, "robots": list(options.get("robots", ()))[first:last]}
    return replace(env, num_envs=last - first, options=options)
