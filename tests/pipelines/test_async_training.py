"""Asynchronous runs: acting goes on while the learner works, dies and is started again, and no transition is lost."""

import errno
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_process import run_cli
from policy_runs import SAC, SMALL, history, learned, train, weights

from rewardlab.cli import main
from rewardlab.config import load_config
from rewardlab.data.transition_log import TransitionLog
from rewardlab.errors import ConfigError
from rewardlab.pipelines import collect
from rewardlab.pipelines.async_training import AsyncTraining
from rewardlab.run_state import list_checkpoints, load_state
from rewardlab.workers.learner_link import LearnerLink

pytestmark = pytest.mark.usefixtures("without_drawing")

ASYNC = [
    *SAC,
    "algorithm.sac.replay_size=100000",
    "algorithm.asynchronous.enabled=true",
    "algorithm.asynchronous.publish_interval=1",
]
ROLLOUT = 8 * 5  # transitions of an iteration


def stored(checkpoint: Path) -> dict[str, Any]:
    return load_state(checkpoint)[0]


def rows_in_replay(checkpoint: Path) -> int:
    return int(stored(checkpoint)["actor"]["replay"]["size"])


def slow_acting(monkeypatch: pytest.MonkeyPatch, until_updates: int) -> None:
    """Let iterations wait until the learner has made some updates: a run this small would end before."""
    send = LearnerLink.send

    def sending(link: LearnerLink, batch: Any, env_steps: int) -> None:
        send(link, batch, env_steps)
        end = time.monotonic() + 60
        while env_steps >= 3 * ROLLOUT and link.figures().get("train/updates", 0) < until_updates:
            link.raise_error()
            assert time.monotonic() < end, "the learner makes no updates"
            time.sleep(0.01)

    monkeypatch.setattr(LearnerLink, "send", sending)


def test_the_learner_updates_a_policy_that_acts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_acting(monkeypatch, 5)
    acted: list[dict[str, torch.Tensor]] = []
    update = AsyncTraining._update_policy

    def updating(training: AsyncTraining) -> None:
        update(training)
        policy = training.workers.lanes.policies[0]._object.policy  # type: ignore[attr-defined]
        acted.append({name: tensor.clone() for name, tensor in policy.state_dict().items()})

    monkeypatch.setattr(AsyncTraining, "_update_policy", updating)
    checkpoint = train(tmp_path / "run", *ASYNC, "runner.max_epochs=8")

    assert rows_in_replay(checkpoint) == 8 * ROLLOUT
    assert any(not torch.equal(acted[-1][name], acted[0][name]) for name in acted[0])
    rows = history(tmp_path / "run")
    assert rows[-1]["async/replay_size"] > 0
    assert rows[-1]["train/updates"] >= 5
    assert "async/staleness_updates" in rows[-1]
    assert len(list_checkpoints(checkpoint.parent)) <= 3
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 0


def test_updates_keep_to_the_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_acting(monkeypatch, 8)
    checkpoint = train(tmp_path / "run", *ASYNC, "runner.max_epochs=2", "algorithm.sac.utd_ratio=0.1")
    assert stored(checkpoint)["updates"] <= 0.1 * 2 * ROLLOUT


@pytest.mark.parametrize("killed", [False, True])
def test_schedules_follow_the_steps_that_the_learner_has(
    killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if killed:
        kill_learner(monkeypatch, 4)
    more = ["algorithm.asynchronous.enabled=true", "algorithm.dqn.epsilon_steps=200", "actor.optim.schedule=cosine"]
    more += ["algorithm.dqn.rollout_steps=10", "env.train.num_envs=4", "runner.max_epochs=8"]
    where = [f"runner.logger.log_path={tmp_path}", "runner.logger.experiment_name=run"]
    assert main(["run", "zoo/cartpole_dqn", *more, *where, "runner.save_interval=100"]) == 0
    policy = stored(list_checkpoints(tmp_path / "run" / "checkpoints")[-1])["policy"]
    assert policy["epsilon"] == pytest.approx(0.05)  # from step 200 on; the run has 320


def kill_learner(monkeypatch: pytest.MonkeyPatch, at_iteration: int) -> list[int]:
    """Kill the learner's process when an iteration is sent; the list gets its process id."""
    killed: list[int] = []
    send = LearnerLink.send

    def killing(link: LearnerLink, batch: Any, env_steps: int) -> None:
        if env_steps == at_iteration * ROLLOUT and not killed:
            killed.append(link.worker.pid)  # type: ignore[attr-defined]
            os.kill(killed[0], signal.SIGKILL)
        send(link, batch, env_steps)

    monkeypatch.setattr(LearnerLink, "send", killing)
    return killed


def test_a_killed_learner_is_started_again_and_has_every_transition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = kill_learner(monkeypatch, 4)
    checkpoint = train(tmp_path / "run", *ASYNC, "runner.max_epochs=8", "runner.save_interval=100")

    assert killed
    assert rows_in_replay(checkpoint) == 8 * ROLLOUT
    assert [row["env_steps"] for row in history(tmp_path / "run")] == [ROLLOUT * (i + 1) for i in range(8)]


def test_a_run_that_shall_stop_with_its_learner_continues_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    where = [f"runner.logger.log_path={tmp_path}", "runner.logger.experiment_name=run"]
    more = [*SMALL, *ASYNC, *where, "runner.max_epochs=300", "algorithm.asynchronous.on_learner_death=stop"]
    with monkeypatch.context() as patched:
        kill_learner(patched, 4)
        assert main(["run", "tabletop_ppo_mlp", *more]) == 1
    words = capsys.readouterr().err
    assert "was killed by SIGKILL" in words
    assert f"runner.resume_dir={out / 'checkpoints' / 'global_step_0'}" in words
    logged = len(TransitionLog(out / "transitions").numbers())
    assert logged >= 4
    resume = f"runner.resume_dir={out / 'checkpoints' / 'global_step_0'}"
    assert main(["run", str(out / "config.yaml"), resume, f"runner.max_epochs={logged + 2}"]) == 0
    assert rows_in_replay(list_checkpoints(out / "checkpoints")[-1]) == (logged + 2) * ROLLOUT


def test_a_killed_run_continues_with_all_that_was_logged(tmp_path: Path) -> None:
    out = tmp_path / "run"
    where = [f"runner.logger.log_path={tmp_path}", "runner.logger.experiment_name=run"]
    arguments = ["run", "tabletop_ppo_mlp", *SMALL, *ASYNC, *where, "runner.max_epochs=100000"]
    process = multiprocessing.get_context("spawn").Process(target=run_cli, args=(arguments,))
    process.start()
    log, end = TransitionLog(out / "transitions"), time.monotonic() + 120
    while len(log.numbers()) < 5 and time.monotonic() < end:
        time.sleep(0.02)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    time.sleep(0.2)  # the learner, which ends with it, may be writing a checkpoint
    newest = list_checkpoints(out / "checkpoints")[-1]
    found = stored(newest)
    last = max([found["received"], *log.numbers()])
    total = last + 3
    assert main(["run", str(out / "config.yaml"), f"runner.resume_dir={newest}", f"runner.max_epochs={total}"]) == 0
    final = list_checkpoints(out / "checkpoints")[-1]
    assert final.name == f"global_step_{total}"
    assert rows_in_replay(final) == total * ROLLOUT
    assert stored(final)["env_steps"] == total * ROLLOUT


def test_a_full_replay_buffer_drops_the_oldest_transitions(tmp_path: Path) -> None:
    checkpoint = train(tmp_path / "run", *ASYNC, "algorithm.sac.replay_size=96", "runner.max_epochs=6")
    assert rows_in_replay(checkpoint) == 96
    assert not TransitionLog(tmp_path / "run" / "transitions").numbers()  # the last checkpoint has what is needed


def test_a_full_disk_stops_the_run_which_continues_with_what_was_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk of this process is full; the learner's, which writes the checkpoint, is not, or not yet."""
    out = tmp_path / "run"
    where = [f"runner.logger.log_path={tmp_path}", "runner.logger.experiment_name=run", "runner.max_epochs=300"]
    log, sync = TransitionLog(out / "transitions"), os.fsync

    def full(descriptor: int) -> None:
        if len(log.numbers()) >= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert main(["run", "tabletop_ppo_mlp", *SMALL, *ASYNC, *where, "runner.save_interval=100"]) == 1
    words = capsys.readouterr().err
    assert "No space left on device. After making room, continue with runner.resume_dir=" in words
    assert "Traceback" not in words
    newest = list_checkpoints(out / "checkpoints")[-1]
    kept = max([stored(newest)["received"], *log.numbers()])
    assert kept >= 2
    more = [f"runner.resume_dir={newest}", f"runner.max_epochs={kept + 3}"]
    assert main(["run", str(out / "config.yaml"), *more]) == 0
    assert rows_in_replay(list_checkpoints(out / "checkpoints")[-1]) == (kept + 3) * ROLLOUT


def test_resuming_keeps_what_was_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_acting(monkeypatch, 3)
    first = train(tmp_path / "run", *ASYNC, "runner.max_epochs=4")
    again = train(tmp_path / "run", *ASYNC, "runner.max_epochs=5", f"runner.resume_dir={first}")
    assert weights(first).keys() == weights(again).keys()
    assert stored(again)["updates"] >= stored(first)["updates"] >= 3


@pytest.mark.parametrize("mode", ["per_step", "terminal"])
def test_demonstrations_end_at_claims_as_episodes_do(
    mode: str, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_acting(monkeypatch, 1)
    cfg = load_config(
        "tabletop_pickcube", ["data.collection.episodes=3", f"data.collection.save_dir={tmp_path / 'demos'}"]
    )
    collect.run(cfg)
    demos = [f"algorithm.sac.demo_path={tmp_path / 'demos'}", "env.train.image_size=[3,64,64]"]
    more = ["reward.model.ends_episode=true", "reward.model.resize=allow", "env.train.success_hold_steps=2"]
    more.append(f"reward.reward_mode={mode}")
    checkpoint = train(
        tmp_path / "run", *ASYNC, *learned(model, *more), *demos, "reward.reward_threshold=0.01", "runner.max_epochs=4"
    )
    # Every frame is a claim, so that all demonstrations and episodes have two steps.
    assert history(tmp_path / "run")[-1]["async/demonstrations"] == 3 * 2
    assert bool(stored(checkpoint)["actor"]["replay"]["rows"]["terminated"].any())


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["algorithm.asynchronous.enabled=true"], "ppo learns only from what its newest policy has done"),
        ([*ASYNC, "reward.cotrain=true", "reward.use_reward_model=true", "reward.model.model_type=rnd"], "cotrain"),
    ],
)
def test_what_cannot_be_asynchronous_is_refused(overrides: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        train(tmp_path / "run", *overrides)
