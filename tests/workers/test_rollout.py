"""Rollouts: every column is what happened, the true last frames are scored, one worker or several."""

import pickle
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rewardlab.config import config_from_mapping
from rewardlab.config.schema import ClusterConfig, ExperimentConfig
from rewardlab.data.packed_batch import scored_pictures
from rewardlab.errors import DataError
from rewardlab.observations import to_batch
from rewardlab.rewards import ResNetRewardModel
from rewardlab.rl.make import make_policy_network
from rewardlab.workers.cluster import Cluster, WorkerPlacement
from rewardlab.workers.env import EnvWorker, FrameRequest
from rewardlab.workers.group import WorkerDied
from rewardlab.workers.reward import launch_reward_workers
from rewardlab.workers.rollout import Lanes, Rollout, RolloutWorker

CAMERA = "base_camera"


def config(**env: Any) -> ExperimentConfig:
    settings = {"num_envs": 4, "max_episode_steps": 3, "image_size": [3, 32, 32], **env}
    return config_from_mapping({"env": {"train": settings}, "actor": {"model": {"hidden_sizes": [8]}}})


def roll(
    cfg: ExperimentConfig, steps: int, *, workers: int = 1, frames: FrameRequest | None = None, rewards: Any = None
) -> tuple[Rollout, Lanes]:
    with Cluster(ClusterConfig()) as cluster:

        def make_env(placement: WorkerPlacement) -> EnvWorker:
            share = replace(cfg.env.train, num_envs=cfg.env.train.num_envs // workers)
            return EnvWorker(share, seed=placement.index, frames=frames, keep_next=True)

        envs = cluster.launch("env", make_env, name="E", count=workers)
        spaces = envs[0].submit("spaces").result()
        policies = cluster.launch(
            "rollout",
            lambda placement: RolloutWorker(make_policy_network(cfg, *spaces), spaces[1], seed=placement.index),
            name="R",
            count=workers,
        )
        group = None if rewards is None else launch_reward_workers(cluster, rewards)
        lanes = Lanes(envs, policies, group)
        return lanes.collect(0, steps, reset=True), lanes


def test_a_rollout_is_what_happened() -> None:
    cfg = config()
    rollout, lanes = roll(cfg, 7)
    batch = rollout.batch.unpack()
    assert batch.batch_size == (7, 4)
    ended = batch["terminated"] | batch["truncated"]
    assert ended.nonzero()[:, 0].unique().tolist() == [2, 5]  # episodes of three steps
    # What follows a step is what the next one acts on, but where an episode ended it is its own last observation.
    same = (batch["next_observation", "state"][:-1] == batch["observation", "state"][1:]).all(-1)
    assert torch.equal(same, ~ended[:-1])
    policy = lanes.policies[0]._object.policy  # type: ignore[attr-defined]
    with torch.no_grad():
        values = policy.value(batch["next_observation"])
    torch.testing.assert_close(batch["next_value"], values)
    assert rollout.episodes.length.tolist() == [3] * 8
    returns = batch["env_reward"][:3].sum(0)
    np.testing.assert_allclose(rollout.episodes.reward[:4], returns, rtol=1e-5)


def test_the_same_seed_gives_the_same_rollout() -> None:
    one, other = (roll(config(), 4)[0].batch.rows for _ in range(2))
    assert (one == other).all()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = ResNetRewardModel("resnet10", hidden_dim=8, image_size=(3, 32, 32), width=4)
    return model.save(tmp_path_factory.mktemp("model") / "best_model")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("mode", ["per_step", "terminal"])
def test_scores_are_of_the_frames_that_followed(checkpoint: Path, workers: int, mode: str) -> None:
    cfg = config(obs_mode="state+images")
    cfg = replace(cfg, actor=replace(cfg.actor, model=replace(cfg.actor.model, kind="cnn")))
    reward = config_from_mapping(
        {"reward": {"use_reward_model": True, "reward_mode": mode, "model": {"checkpoint_path": str(checkpoint)}}}
    ).reward
    request = FrameRequest((CAMERA,), terminal=mode == "terminal")
    rollout, _ = roll(cfg, 13, workers=workers, frames=request, rewards=reward)
    batch = rollout.batch.unpack()
    scored = (batch["terminated"] | batch["truncated"]) if mode == "terminal" else torch.ones(13, 4, dtype=torch.bool)
    frames = batch["next_observation", "images", CAMERA][scored]
    assert rollout.frames is not None
    assert torch.equal(rollout.frames.scored, scored)
    np.testing.assert_array_equal(rollout.frames.all()[CAMERA], frames.numpy())
    rows = np.array([5, 0, 11])
    np.testing.assert_array_equal(rollout.frames.select(rows)[CAMERA], frames.numpy()[rows])
    from rewardlab.rewards import load_reward_model

    estimate = batch["estimate", "resnet_reward"]
    assert torch.equal(estimate[scored], load_reward_model(checkpoint).probabilities(frames))
    assert estimate[~scored].isnan().all()
    assert (batch["model_version", "resnet_reward"] == 0).all()


def test_a_rollout_that_was_made_again_names_the_workers_that_died(monkeypatch: pytest.MonkeyPatch) -> None:
    dead: list[Any] = []  # the first worker of each kind in lane 1

    def alive(worker: EnvWorker | RolloutWorker, call: Any, *args: Any) -> Any:
        if worker.seed == 1 and not any(type(worker) is type(other) for other in dead):
            dead.append(worker)
        if worker in dead:
            raise WorkerDied("it is dead")
        return call(worker, *args)

    for kind, method in ((EnvWorker, "step"), (EnvWorker, "ping"), (RolloutWorker, "ping")):
        monkeypatch.setattr(kind, method, partialmethod(alive, getattr(kind, method)))
    with pytest.warns(RuntimeWarning, match="it is dead; the worker is restarted and the rollout collected again"):
        rollout, _ = roll(config(), 3, workers=2)
    assert rollout.replaced == ("env_1", "rollout_1")
    assert rollout.after_reset
    assert roll(config(), 3)[0].replaced == ()


@pytest.mark.parametrize("terminal", [False, True])
def test_each_picture_crosses_processes_once(terminal: bool) -> None:
    """The policy and a reward model that scores again look at the same camera."""
    cfg = config(obs_mode="state+images", num_envs=3, max_episode_steps=4)
    request = FrameRequest((CAMERA,), terminal=terminal, stored=True)
    worker = EnvWorker(cfg.env.train, seed=0, frames=request, keep_next=True)
    worker.begin(0)
    for _ in range(2):
        for _ in range(6):
            worker.step(np.ones((3, 4), np.float32) * 0.3)
        packed = worker.fetch()
        batch = packed.unpack()
        ended = batch["terminated"] | batch["truncated"]
        assert len(packed.frames[CAMERA]) == 7 * 3 + int(
            ended[:-1].sum()
        )  # seven moments, and the last ones of episodes
        assert len(pickle.dumps(packed)) < len(packed.frames[CAMERA]) * 32 * 32 * 3 * 1.1 + 5000
        pictures, has_frame = scored_pictures(batch, CAMERA, packed.frames)
        assert torch.equal(has_frame, ended if terminal else torch.ones_like(ended))
        assert torch.equal(pictures, batch["next_observation", "images", CAMERA][has_frame])


def test_terminal_mode_draws_last_frames_only(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = EnvWorker(config().env.train, seed=0, frames=FrameRequest((CAMERA,), terminal=True))
    drawn: list[int] = []
    table = worker.env.unwrapped
    render = table.render_cameras

    def counted(*args: Any, **kwargs: Any) -> Any:
        pictures = render(*args, **kwargs)
        drawn.append(len(pictures[CAMERA]))
        return pictures

    monkeypatch.setattr(worker._frames, "_render_cameras", counted)
    worker.begin(0)
    for _ in range(6):
        worker.step(np.zeros((4, 4), np.float32))
    assert drawn == [4, 4]
    assert worker.fetch_frames()[CAMERA].shape == (8, 32, 32, 3)


def test_a_camera_that_the_environment_does_not_have_is_an_error_at_once() -> None:
    with pytest.raises(DataError, match="no camera 'side_camera': the environment has base_camera"):
        EnvWorker(config().env.train, seed=0, frames=FrameRequest(("side_camera",), terminal=True))


def test_an_environment_that_never_reports_success_has_none() -> None:
    cfg = config_from_mapping({"env": {"train": {"id": "CartPole-v1", "num_envs": 2, "cameras": []}}})
    rollout, _ = roll(cfg, 40)
    assert rollout.episodes.success_once is None
    assert len(rollout.episodes.length) > 0
    first = to_batch({"state": np.zeros((2, 4), np.float32)})
    assert first.batch_size == (2,)
