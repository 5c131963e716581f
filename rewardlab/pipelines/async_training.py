"""The loop of an asynchronous run: environments are stepped at their own pace, and the learner updates at its own.

What is stepped together, `rollout_steps` of each environment, is one iteration. Its transitions go to the learner, in a
process of its own, and the newest policy comes back, both through a thread (`LearnerLink`): stepping never waits for
learning. Between checkpoints, transitions are logged to disk.
"""

import shutil
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from rewardlab.config import ExperimentConfig
from rewardlab.data.packed_batch import PackedBatch
from rewardlab.data.transition_log import TransitionLog
from rewardlab.errors import ConfigError, RewardlabError
from rewardlab.pipelines.policy_training import PolicyTraining
from rewardlab.pipelines.policy_workers import PolicyWorkers
from rewardlab.reports.run_log import RunLog
from rewardlab.run_state import STEP, list_checkpoints
from rewardlab.workers.group import Worker
from rewardlab.workers.learner_link import LearnerLink

KEPT_CHECKPOINTS = 2  # each has the whole replay buffer
LOG = "transitions"  # directory of the transitions since the last checkpoint


class AsyncTraining(PolicyTraining):
    """Acts in this process (or Ray's), with a learner in another."""

    def __init__(self, cfg: ExperimentConfig, workers: PolicyWorkers, out: Path) -> None:
        super().__init__(cfg, workers, out)
        if workers.rewards.trainer is not None:
            raise ConfigError(
                "algorithm.asynchronous.enabled: found true, but a reward model of this run is trained with the "
                "policy, or looks at transitions; expected success classifiers with reward.cotrain=false"
            )
        self.log = TransitionLog(out / LOG)
        restart = cfg.algorithm.asynchronous.on_learner_death == "act"
        self.link = LearnerLink(workers.actor, self.log, self._restore, restart=restart)
        self._saving: tuple[threading.Event, Path] | None = None
        self._acting: dict[str, Tensor] = {}  # weights of the policy that acts
        self._acts, self._closed = True, False

    def begin(self) -> None:
        super().begin()
        self.log.forget(max(self.log.numbers(), default=-1))
        self._begin_learning(after=-1)
        self.save()  # so that a crash at any time finds a checkpoint

    def _state_loaded(self, state: Mapping[str, Any]) -> None:
        """Add the transitions since the checkpoint, which count as iterations of this run."""
        received, numbers = state.get("received", self.progress.iteration - 1), self.log.numbers()
        if numbers and numbers[0] > received + 1:  # a checkpoint before the newest: what came after it is dropped
            self.log.forget(numbers[-1])
        chunks = list(self.log.read(received))
        if chunks:
            self.progress.iteration, self.progress.env_steps = chunks[-1].number + 1, chunks[-1].env_steps
        elif (unknown := received + 1 - self.progress.iteration) > 0:  # saved after the learner was started again
            self.progress.iteration += unknown
            self.progress.env_steps += unknown * self.cfg.algorithm.rollout_steps * self.cfg.env.train.num_envs
        self.completed = self.progress.iteration
        self._begin_learning(after=received)

    def _begin_learning(self, after: int) -> None:
        self.actor.submit("set_progress", self.progress.env_steps, self.total_env_steps).result()
        self.actor.submit("read_log", self.log.directory.resolve(), after).result()
        self._act_with(self.actor.submit("policy_weights").result())
        self.actor.submit("begin").result()
        self.link.begin(self.progress.iteration)

    def _restore(self, learner: Worker) -> None:
        """Give a learner that was started again the state of the last checkpoint and what was sent since."""
        learner.submit("set_progress", 0, self.total_env_steps).result()  # its chunks say how much is done
        learner.submit("set_rewards", self.rewards.rule, {}).result()
        if self.cfg.algorithm.sac.demo_path is not None:
            learner.submit("load_demonstrations").result()
        learner.submit(
            "restore", list_checkpoints(self.checkpoints)[-1].resolve(), self.log.directory.resolve()
        ).result()
        learner.submit("begin").result()

    def _update_policy(self) -> None:
        policy = self.link.take_policy()
        if policy is not None:
            self._act_with(policy.weights)

    def _act_with(self, weights: dict[str, Tensor]) -> None:
        self._acting = weights
        self.workers.lanes.policies.setup("load_policy", weights)

    def _policy_to_evaluate(self) -> dict[str, Tensor]:
        """Return the policy that acts: the learner may be busy, or be started again."""
        return self._acting

    def _begin_episodes(self) -> None:
        """The learner stores single transitions, to which a reset means nothing."""

    def _learn(self, batch: PackedBatch) -> dict[str, float]:
        self.link.send(batch, self.progress.env_steps)
        return self.link.figures()

    def save_if_due(self, log: RunLog) -> None:
        """Let the learner write a checkpoint, without waiting for it except at the end."""
        for death in self.link.take_deaths():
            log.say(f"{death}; it is started again, and continues from its last checkpoint and the logged transitions")
        self._note_saved()
        if self.finished:
            log.flush()
            self._stop_acting()
            self._wait_for_saved()
            self.save()
        elif self.is_due(self.cfg.runner.save_interval) and self._saving is None:
            log.flush()
            self._begin_saving()

    def save(self) -> None:
        """Write a checkpoint and wait for it."""
        self._begin_saving()
        self._wait_for_saved()

    def _begin_saving(self) -> None:
        path = self.checkpoint
        self._saving = self.link.save(path.resolve(), self._acting_state(), self._facts), path
        self.rewards.save("last")

    def _note_saved(self) -> None:
        if self._saving is not None and self._saving[0].is_set():
            self.saved, self._saving = self._saving[1], None
            for old in list_checkpoints(self.checkpoints)[:-KEPT_CHECKPOINTS]:
                shutil.rmtree(old, ignore_errors=True)

    def _wait_for_saved(self) -> None:
        if self._saving is not None:
            self.link.wait_until_saved(self._saving[0])
            self._note_saved()

    def abandon(self, *, save: bool) -> Path | None:
        """Stop the robots, then save what can be saved; return the last checkpoint."""
        with suppress(Exception):  # what ended the run says more
            self.close()
        return self.saved

    def close(self) -> None:
        """Stop the robots first; then save what was learned since the last checkpoint, and end the learner."""
        if self._closed:
            return
        self._closed = True
        try:
            self._stop_acting()
        finally:
            unsaved = self.saved is None or self.saved.name != f"{STEP}{self.completed}"
            if unsaved and self.progress.iteration == self.completed:
                with suppress(RewardlabError):  # what was logged is on disk, and what ended the run says more
                    self._wait_for_saved()
                    self.save()
            try:
                self.link.end()
            finally:
                with suppress(RewardlabError):
                    self.actor.submit("end").result(30)

    def _stop_acting(self) -> None:
        """Close the environments: robots must not stand under control while a checkpoint is written."""
        if self._acts:
            self._acts = False
            super().close()
