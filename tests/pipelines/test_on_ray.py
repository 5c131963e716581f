"""Policies trained on Ray: as in one process, also when workers are killed."""

import os
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from policy_runs import SAC, SMALL, history, same, weights, without_times

from rewardlab.config import load_config
from rewardlab.data import read_episodes
from rewardlab.live_state import LiveState
from rewardlab.pipelines import collect, train_policy
from rewardlab.rewards import BinaryRewardClassifier
from rewardlab.run_state import load_state
from rewardlab.workers.learner_link import LearnerLink
from rewardlab.workers.ray_actor import RayWorker
from rewardlab.workers.rollout import Lanes, Rollout

CLASSIFIER = [*SMALL, "runner.max_epochs=6", "reward.use_reward_model=true", "reward.reward_mode=terminal"]
GAIL = [
    "env.train.num_envs=4",
    "env.eval.num_envs=2",
    "algorithm.dqn.rollout_steps=8",
    "algorithm.dqn.learning_starts=32",
    "actor.model.hidden_sizes=[8]",
    "actor.global_batch_size=16",
    "runner.max_epochs=4",
    "runner.val_check_interval=3",
    "runner.save_interval=2",
    "reward.model.options.clear_buffer_per_iters=3",
]


MORTAL = [
    "env.train.id=mortal_env:Mortal-v0",
    "env.train.num_envs=4",
    "env.eval.num_envs=2",
    "algorithm.ppo.rollout_steps=12",
    "algorithm.ppo.update_epochs=1",
    "actor.model.hidden_sizes=[8]",
    "actor.global_batch_size=24",
    "runner.max_epochs=2",
    "runner.save_interval=1",
]
RANDOM = ["data.collection.policy=random", "seed=1"]


def train(config: str, out: Path, *overrides: str) -> Path:
    where = [f"runner.logger.log_path={out.parent}", f"runner.logger.experiment_name={out.name}"]
    return train_policy.run(load_config(config, [*where, *overrides]))


def recorded(train_it: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train_it()
    return [str(warning.message) for warning in caught]


class ClassifierRuns:
    """A run in this process, and one on Ray of which a worker of each kind is killed after two iterations."""

    def __init__(self, directory: Path) -> None:
        self.here, self.there = directory / "here", directory / "there"
        self.killed: list[str] = []
        torch.manual_seed(0)
        model = BinaryRewardClassifier(image_size=(3, 32, 32), width=4, hidden_dim=8, num_spatial_blocks=2)
        self.settings = [*CLASSIFIER, f"reward.model.checkpoint_path={model.save(directory / 'best_model')}"]
        self.train(self.here)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Lanes, "collect", self._kill_and(Lanes.collect))
            self.warnings = recorded(lambda: self.train(self.there, "cluster.backend=ray"))

    def train(self, out: Path, *more: str) -> None:
        collection = ["data.collection.enabled=true", f"data.collection.save_dir={out}_data"]
        train("tabletop_ppo_mlp", out, *self.settings, *collection, *more)

    def _kill_and(self, roll: Callable[..., Rollout]) -> Callable[..., Rollout]:
        def murderous(lanes: Lanes, iteration: int, steps: int, **how: Any) -> Rollout:
            groups: dict[str, Any] = {"env": lanes.envs, "rollout": lanes.policies, "reward": lanes.rewards}
            if 2 <= iteration <= 4 and len(self.killed) < iteration - 1:
                victim = list(groups)[iteration - 2]
                self.killed.append(victim)
                process = ray.get(groups[victim][0].actor.pid.remote())
                threading.Timer(0.02, os.kill, (process, signal.SIGKILL)).start()
            return roll(lanes, iteration, steps, **how)

        return murderous


@pytest.fixture(scope="module")
def classifier_runs(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> ClassifierRuns:
    return ClassifierRuns(tmp_path_factory.mktemp("classifier"))


def test_ray_and_this_process_train_the_same_policy_on_a_classifier(classifier_runs: ClassifierRuns) -> None:
    here, there = classifier_runs.here, classifier_runs.there
    assert same(*(weights(run / "checkpoints" / "global_step_2") for run in (here, there)))
    assert without_times(history(here))[:2] == without_times(history(there))[:2]


def test_workers_killed_in_mid_run_are_replaced_and_the_run_goes_on(classifier_runs: ClassifierRuns) -> None:
    assert classifier_runs.killed == ["env", "rollout", "reward"]
    steps = [row["env_steps"] for row in history(classifier_runs.there)]
    assert steps == [80, 160, 240, 320, 400, 480]  # nothing twice
    assert sum("died" in message for message in classifier_runs.warnings) >= 3


def test_iterations_whose_rollout_was_made_again_are_in_metrics_and_report(classifier_runs: ClassifierRuns) -> None:
    repeated = [row["iteration"] for row in history(classifier_runs.there) if "replaced/env_0" in row]
    assert repeated
    report = (classifier_runs.there / "report.html").read_text()
    assert all(f"Iteration {n}: env worker 0 was replaced; its rollout was made again" in report for n in repeated)
    assert "was replaced" not in (classifier_runs.here / "report.html").read_text()


def collected(out: Path) -> Counter[str]:
    return Counter(episode.digest for episode in read_episodes(f"{out}_data"))


def test_no_episode_of_a_complete_rollout_is_lost_with_a_worker_or_written_twice(
    classifier_runs: ClassifierRuns,
) -> None:
    here, there = collected(classifier_runs.here), collected(classifier_runs.there)
    assert here.total() == 6 * 16
    assert max(there.values()) == 1
    assert (here & there).total() >= 2 * 16  # until the first worker was killed both runs are the same
    assert there.total() >= 6 * 16  # and what the killed attempts had written


def test_a_run_that_is_resumed_on_ray_knows_the_episodes_that_it_wrote_in_this_process(
    classifier_runs: ClassifierRuns,
) -> None:
    run, before = classifier_runs.here, collected(classifier_runs.here)
    classifier_runs.train(run, "cluster.backend=ray", f"runner.resume_dir={run}/checkpoints/global_step_4")
    assert collected(run) == before


class GailRuns:
    """A run in this process and one on Ray, of which workers are killed.

    The reward model is killed before its second and fourth update, the learner in its third, after which the run goes
    back to its second iteration.
    """

    def __init__(self, directory: Path) -> None:
        self.here, self.there = directory / "here", directory / "there"
        self.killed: list[int | str] = []
        expert = directory / "expert"
        shown = load_config("zoo/cartpole_expert", [*RANDOM, f"data.collection.save_dir={expert}"])
        recorded(lambda: collect.run(shown))  # warns that CartPole knows no success
        settings = [*GAIL, f"reward.model.options.expert_data_path={expert}"]
        self.last_here = train("zoo/cartpole_dqn_gail", self.here, *settings)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RayWorker, "change", self._kill_and(RayWorker.change))
            patch.setattr(RayWorker, "submit", self._kill_learner_and(RayWorker.submit))
            self.warnings = recorded(
                lambda: train("zoo/cartpole_dqn_gail", self.there, *settings, "cluster.backend=ray")
            )
        self.last_there = self.there / "checkpoints" / self.last_here.name

    def _kill_and(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def murderous(worker: RayWorker, method: str, *args: Any) -> Any:
            if method == "update" and args[1] in (2, 4) and args[1] not in self.killed:
                self.killed.append(args[1])
                os.kill(ray.get(worker.actor.pid.remote()), signal.SIGKILL)
            return change(worker, method, *args)

        return murderous

    def _kill_learner_and(self, submit: Callable[..., Any]) -> Callable[..., Any]:
        def murderous(worker: RayWorker, method: str, *args: Any, **how: Any) -> Any:
            future = submit(worker, method, *args, **how)
            if worker.label == "actor_0" and method == "add" and args[1] == 96 and "learner" not in self.killed:
                self.killed.append("learner")
                os.kill(ray.get(worker.actor.pid.remote()), signal.SIGKILL)
            return future

        return murderous


@pytest.fixture(scope="module")
def gail_runs(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> GailRuns:
    return GailRuns(tmp_path_factory.mktemp("gail"))


def test_ray_and_this_process_train_the_same_policy_with_gail(gail_runs: GailRuns) -> None:
    assert same(weights(gail_runs.last_here), weights(gail_runs.last_there))


def test_models_whose_process_is_killed_go_on_as_if_it_had_lived(gail_runs: GailRuns) -> None:
    assert gail_runs.killed == [2, "learner", 4]
    assert any("RewardTrainer[0] died" in message for message in gail_runs.warnings)
    rows = history(gail_runs.there)
    assert rows[2].pop("went_back/actor_0") == 0  # it died in the iteration after the checkpoint
    assert without_times(rows) == without_times(history(gail_runs.here))
    report = (gail_runs.there / "report.html").read_text()
    assert "Iteration 3: the learner was replaced and the run went back to the checkpoint of iteration 2" in report


def test_environments_in_processes_of_a_ray_worker_give_the_same_run(ray_session: None, tmp_path: Path) -> None:
    """Until a process dies, in the second iteration: that costs a rollout, as it does without Ray."""
    here, there = tmp_path / "here", tmp_path / "there"
    train("tabletop_ppo_mlp", here, *MORTAL, "env.train.processes=1")
    mortal = [f"env.train.options={{marker: {tmp_path / 'died'}}}", "env.eval.options={marker: ''}"]
    on_ray = ["cluster.backend=ray", "env.train.processes=2", "env.eval.processes=1", *mortal]
    warned = recorded(lambda: train("tabletop_ppo_mlp", there, *MORTAL, *on_ray))
    assert same(*(weights(run / "checkpoints" / "global_step_1") for run in (here, there)))
    assert without_times(history(here))[:1] == without_times(history(there))[:1]
    assert any("exit status 9" in message and "the rollout is collected again" in message for message in warned)
    assert [row.get("replaced/env_process", 0) for row in history(there)] == [0, 1]
    assert "a process with environments was replaced" in (there / "report.html").read_text()


@pytest.mark.usefixtures("ray_session", "without_drawing")
def test_the_page_of_a_run_on_ray_has_its_curves(tmp_path: Path) -> None:
    """Pictures stay in the processes that draw them."""
    live = LiveState("a run")
    where = [f"runner.logger.log_path={tmp_path}", "runner.logger.experiment_name=run", "cluster.backend=ray"]
    train_policy.run(load_config("tabletop_ppo_mlp", [*SMALL, *where, "runner.max_epochs=1"]), live=live)
    (row,) = history(tmp_path / "run")
    assert live.curves()["env/return"] == [(row["env_steps"], row["env/return"])]
    assert live.snapshot().envs == []


def test_an_asynchronous_run_goes_on_when_its_learner_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[RayWorker] = []
    send = LearnerLink.send

    def killing(link: LearnerLink, batch: Any, env_steps: int) -> None:
        if env_steps >= 4 * 40 and not killed:
            assert isinstance(link.worker, RayWorker)
            killed.append(link.worker)
            ray.kill(link.worker.actor)
        send(link, batch, env_steps)

    monkeypatch.setattr(LearnerLink, "send", killing)
    more = ["algorithm.sac.replay_size=1000", "algorithm.asynchronous.enabled=true", "runner.save_interval=100"]
    run = [*SMALL, *SAC, *more, "cluster.backend=ray", "runner.max_epochs=8"]
    checkpoint = train("tabletop_ppo_mlp", tmp_path / "run", *run)
    assert killed
    assert load_state(checkpoint)[0]["actor"]["replay"]["size"] == 8 * 40
