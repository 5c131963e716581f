"""The policy loop: resumed or not, in process or on Ray, on the environment's reward or a learned one."""

import errno
import json
import os
import re
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from policy_runs import SMALL, history, learned, same, train, weights, without_times
from tensorboard.summary.writer.record_writer import RecordWriter

from rewardlab.cli import main
from rewardlab.data import read_episodes
from rewardlab.envs.tabletop import TabletopVectorEnv
from rewardlab.errors import ConfigError, DataError, StoppedByAlarm
from rewardlab.pipelines.evaluate import evaluate
from rewardlab.reports.run_log import RunLog
from rewardlab.run_state import load_state
from rewardlab.workers.actor import ActorWorker

pytestmark = pytest.mark.usefixtures("without_drawing")  # the run of the module fixture `unbroken` draws its report


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "unbroken"
    assert train(out, "runner.max_epochs=4") == out / "checkpoints" / "global_step_4"
    return out


def test_a_run_leaves_all_that_one_needs(unbroken: Path) -> None:
    rows = history(unbroken)
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4]
    assert rows[-1]["env_steps"] == 4 * 10 * 8
    wanted = {
        "env/success_once",
        "env/success_at_end",
        "env/return",
        "rollout/rewards",
        "train/policy_loss",
        "time/learn",
    }
    assert wanted <= set(rows[0])
    assert [row["iteration"] for row in rows if "eval/success_at_end" in row] == [2, 4]
    assert (unbroken / "report.html").stat().st_size > 10_000
    assert list(unbroken.glob("events.out.tfevents.*"))
    checkpoint, figures = evaluate(unbroken, episodes=4, seed=10_000)
    assert checkpoint.name == "global_step_4"
    assert figures["return"] == pytest.approx(rows[-1]["eval/return"])


def test_a_resumed_run_goes_on_as_if_it_had_never_stopped(unbroken: Path, tmp_path: Path) -> None:
    out = tmp_path / "broken"
    train(out, "runner.max_epochs=3")
    (out / "metrics.jsonl").open("a").write('{"iteration": 4, "env_st')  # a kill in the middle of a line
    last = train(out, "runner.max_epochs=4", f"runner.resume_dir={out / 'checkpoints' / 'global_step_2'}")
    assert same(weights(last), weights(unbroken / "checkpoints" / "global_step_4"))
    assert without_times(history(out)) == without_times(history(unbroken))


def test_another_seed_gives_another_policy(unbroken: Path, tmp_path: Path) -> None:
    last = train(tmp_path / "other", "runner.max_epochs=4", "seed=1")
    assert not same(weights(last), weights(unbroken / "checkpoints" / "global_step_4"))


def test_a_run_is_not_overwritten(unbroken: Path) -> None:
    with pytest.raises(DataError, match="already contains a run"):
        train(unbroken)


@pytest.mark.parametrize("mode", ["terminal", "per_step"])
def test_the_reward_of_a_second_stage_is_the_models_alone(
    unbroken: Path, model: Path, tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    add = ActorWorker.add

    def watched(self: Any, rollout: Any, *more: Any) -> int:
        seen.append(rollout.rows)
        return add(self, rollout, *more)

    monkeypatch.setattr(ActorWorker, "add", watched)
    resume = f"runner.resume_dir={unbroken / 'checkpoints' / 'global_step_4'}"
    more = (f"reward.reward_mode={mode}", "reward.reward_type=continuous", "reward.reward_weight=10")
    last = train(tmp_path / "stage", *learned(model, *more), resume, "runner.max_epochs=6")
    assert last.name == "global_step_6"
    rows = history(tmp_path / "stage")
    assert [row["iteration"] for row in rows] == [5, 6]
    assert {"audit/fpr", "rollout/model_rewards", "time/compute_model_rewards"} <= set(rows[0])
    ended = seen[0]["truncated"]
    rewards = seen[0]["reward"]
    if mode == "terminal":
        assert (rewards[~ended] == 0).all()
    paid = rewards[ended] if mode == "terminal" else rewards
    assert ((paid > 0) & (paid < 10)).all()
    assert rows[0]["rollout/model_rewards"] == pytest.approx(float(paid.mean()) / 10, rel=1e-4)
    assert not torch.equal(seen[0]["env_reward"], rewards)


@pytest.mark.parametrize("config", ["ppo", "sac"])
def test_the_reward_reaches_the_learner(model: Path, tmp_path: Path, config: str) -> None:
    policies = []
    for weight in (0, 1, 1000):
        overrides = [
            *learned(model, "reward.reward_mode=per_step", f"reward.reward_weight={weight}"),
            "runner.max_epochs=2",
        ]
        overrides += ["reward.reward_type=continuous", f"algorithm.name={config}"]
        overrides += ["algorithm.sac.learning_starts=0", "algorithm.sac.rollout_steps=5", "algorithm.sac.utd_ratio=0.1"]
        policies.append(weights(train(tmp_path / f"weight_{weight}", *overrides)))
    assert not any(same(one, other) for k, one in enumerate(policies) for other in policies[:k])


@pytest.mark.parametrize("images", [False, True])
def test_sac_resumes_with_its_replay_buffer(model: Path, tmp_path: Path, images: bool) -> None:
    sac = ["algorithm.name=sac", "algorithm.sac.learning_starts=40", "algorithm.sac.rollout_steps=5"]
    sac += ["algorithm.sac.utd_ratio=0.1", "algorithm.sac.replay_size=500"]
    if images:  # the policy and the classifier look at the same camera; the ring wraps around
        sac += ["env.train.obs_mode=proprio+images", "actor.model.kind=cnn", "algorithm.sac.replay_size=130"]
        sac += learned(model, "reward.reward_type=continuous", "reward.relabel=sample")
    whole = train(tmp_path / "whole", *sac, "runner.max_epochs=4")
    train(tmp_path / "parts", *sac, "runner.max_epochs=2")
    last = train(
        tmp_path / "parts", *sac, "runner.max_epochs=4", f"runner.resume_dir={tmp_path}/parts/checkpoints/global_step_2"
    )
    assert same(weights(last), weights(whole))


def test_demonstrations_that_show_something_else_are_refused(tmp_path: Path) -> None:
    data = tmp_path / "expert"
    shown = ["--episodes", "2", "--policy", "expert", "--out", str(data)]
    assert main(["collect", "tabletop_pickcube", *shown, "env.train.image_size=[3,32,32]"]) == 0
    sac = ["algorithm.name=sac", f"algorithm.sac.demo_path={data}", "actor.model.kind=cnn"]
    with pytest.raises(DataError, match=r"sees state of shape \[8\], found \[23\].*obs_mode"):
        train(tmp_path / "robot", *sac, "env.train.obs_mode=proprio+images", "env.train.image_size=[3,32,32]")
    with pytest.raises(DataError, match=r"sees images.base_camera of shape \[48, 48, 3\], found \[32, 32, 3\]"):
        train(tmp_path / "larger", *sac, "env.train.obs_mode=state+images", "env.train.image_size=[3,48,48]")


def test_a_policy_that_does_not_fit_an_environment_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / "run", "runner.max_epochs=1")
    other = ["env.train.id=Pendulum-v1", "env.train.cameras=[]"]
    shown = ["--episodes", "1", "--policy", str(tmp_path / "run"), "--out", str(tmp_path / "data")]
    assert main(["collect", "tabletop_pickcube", *shown, *other]) == 2
    assert "its policy does not fit the environment, whose observations are Box" in capsys.readouterr().err


def test_a_reward_that_is_no_number_stops_before_anything_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = TabletopVectorEnv.step

    def broken(self: Any, actions: Any) -> Any:
        obs, reward, *rest = step(self, actions)
        reward = reward.copy()
        reward[3] = np.nan
        return obs, reward, *rest

    monkeypatch.setattr(TabletopVectorEnv, "step", broken)
    with pytest.raises(DataError, match="reward is nan in step 1 of environment 3"):
        train(tmp_path / "run", "runner.max_epochs=1")


FULL = OSError(errno.ENOSPC, "No space left on device")


def run_from_the_command_line(out: Path, *overrides: str) -> int:
    where = [f"runner.logger.log_path={out.parent}", f"runner.logger.experiment_name={out.name}"]
    return main(["run", "tabletop_ppo_mlp", *SMALL, *where, *overrides])


def test_rows_of_the_log_wait_for_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = RunLog._append

    def full(self: RunLog) -> None:
        if len(self._waiting) < 2:
            raise FULL
        append(self)

    monkeypatch.setattr(RunLog, "_append", full)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(tmp_path / "run", "runner.max_epochs=4")
    assert [row["iteration"] for row in history(tmp_path / "run")] == [1, 2, 3, 4]
    assert sum("cannot be written (No space left" in str(w.message) for w in caught) == 1


def test_a_full_disk_under_the_log_ends_the_run_before_its_next_checkpoint(
    unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    append, out = RunLog._append, tmp_path / "run"

    def full(self: RunLog) -> None:
        if '"iteration": 3' in "".join(self._waiting):
            raise FULL
        append(self)

    monkeypatch.setattr(RunLog, "_append", full)
    assert run_from_the_command_line(out, "runner.max_epochs=4") == 1
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    resume = out / "checkpoints" / "global_step_2"
    assert error == (
        f"error: could not write {out / 'metrics.jsonl'}: No space left on device; its last 2 rows are missing. After "
        f"making room, continue with runner.resume_dir={resume}"
    )
    monkeypatch.undo()
    train(out, "runner.max_epochs=4", f"runner.resume_dir={resume}")
    assert without_times(history(out)) == without_times(history(unbroken))


def test_a_full_disk_under_a_checkpoint_keeps_the_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, sync = tmp_path / "run", os.fsync

    def full(descriptor: int) -> None:
        if "global_step_4" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise FULL
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    assert run_from_the_command_line(out, "runner.max_epochs=4") == 1
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert f"could not write {out}/checkpoints/global_step_4: No space left on device" in error
    assert error.endswith(f"continue with runner.resume_dir={out}/checkpoints/global_step_2")
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["global_step_2"]
    load_state(out / "checkpoints" / "global_step_2")


def test_a_full_disk_before_the_first_checkpoint_gives_no_advice_that_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise FULL

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert run_from_the_command_line(tmp_path / "run", "runner.max_epochs=2") == 1
    assert "resume_dir" not in capsys.readouterr().err
    assert run_from_the_command_line(tmp_path / "run", "runner.max_epochs=2") == 0


def test_a_full_disk_under_tensorboard_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise FULL

    monkeypatch.setattr(RecordWriter, "write", full)
    assert run_from_the_command_line(tmp_path / "run", "runner.max_epochs=2") == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "TensorBoard's files cannot be written (No space left on device); training goes on" in lines[0]


def test_a_policy_of_another_size_is_refused_in_words(unbroken: Path, tmp_path: Path) -> None:
    resume = f"runner.resume_dir={unbroken / 'checkpoints' / 'global_step_4'}"
    with pytest.raises(ConfigError, match=r"does not fit this config"):
        train(tmp_path / "run", resume, "actor.model.hidden_sizes=[8]")
    with pytest.raises(ConfigError, match=r"was trained by ppo, but algorithm\.name is sac"):
        train(tmp_path / "run2", resume, "algorithm.name=sac")


def test_training_stops_when_enough_episodes_succeed_or_steps_are_spent(tmp_path: Path) -> None:
    train(tmp_path / "run", "runner.max_epochs=9", "runner.max_env_steps=160")
    assert len(history(tmp_path / "run")) == 2


def test_episodes_are_collected_while_a_policy_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    collect = ["data.collection.enabled=true", f"data.collection.save_dir={data}", "runner.max_epochs=2"]
    train(tmp_path / "run", *collect)
    episodes = read_episodes(data)
    assert len(episodes) == 2 * 2 * 8
    assert episodes[0].length == 6
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.strip().splitlines()[-1])["length"] == 5


@pytest.mark.parametrize("mode", ["per_step", "terminal"])
def test_debug_images_of_several_workers_have_ids_of_their_own(model: Path, tmp_path: Path, mode: str) -> None:
    settings = [*learned(model, f"reward.reward_mode={mode}"), "cluster.workers.reward=3", "cluster.workers.env=2"]

    def pictures(out: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (out.parent / f"{out.name}_images").rglob("*.png")}

    def run(out: Path, *more: str) -> None:
        train(out, *settings, f"reward.model.debug_save_dir={out}_images", *more)

    run(tmp_path / "whole", "runner.max_epochs=4")
    found = pictures(tmp_path / "whole")
    assert len(found) == len({name[:6] for name in found}) == 4 * 8 * (10 if mode == "per_step" else 2)
    run(tmp_path / "parts", "runner.max_epochs=3")
    run(tmp_path / "parts", "runner.max_epochs=4", f"runner.resume_dir={tmp_path}/parts/checkpoints/global_step_2")
    assert pictures(tmp_path / "parts") == found  # a frame that is scored again has the same name
    run(tmp_path / "parts", "runner.max_epochs=1", "runner.logger.experiment_name=second")
    assert set(pictures(tmp_path / "parts")) >= set(found)  # a second run goes on behind the first
    assert len(pictures(tmp_path / "parts")) == len(found) * 5 // 4


@pytest.mark.parametrize("action", ["stop", "terminal"])
def test_an_alarm_is_heeded(model: Path, tmp_path: Path, action: str, capsys: pytest.CaptureFixture[str]) -> None:
    # A threshold that every frame passes: all failures are called success.
    settings = ["reward.reward_mode=per_step", "reward.reward_threshold=0.001", "reward.audit.window=5"]
    settings += [f"reward.audit.on_alarm={action}", "runner.max_epochs=8"]
    out = tmp_path / "run"
    with pytest.raises(StoppedByAlarm, match="the audit raised") if action == "stop" else nullcontext():
        train(out, *learned(model, *settings))
    rows = history(out)
    assert re.search("^alarm: .*false", capsys.readouterr().out, re.MULTILINE | re.IGNORECASE)
    if action == "stop":
        assert len(rows) == 5
        assert "the audit raised an alarm" in (out / "report.html").read_text()
        return
    assert len(rows) == 8
    assert load_state(out / "checkpoints" / "global_step_8")[0]["rewards"]["terminal_only"]
    # From then on only the last of five frames is paid.
    assert rows[3]["rollout/rewards"] == pytest.approx(1)
    assert rows[6]["rollout/rewards"] == pytest.approx(1 / 5)


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_a_classifier_and_a_novelty_bonus_are_added_up(model: Path, tmp_path: Path, algorithm: str) -> None:
    out = tmp_path / "run"
    bonus = "{model_type: rnd, weight: 3.0, cotrain: true, options: {intrinsic_reward_type: assign}}"
    settings = ["reward.use_reward_model=true", "reward.reward_type=continuous", "reward.reward_mode=per_step"]
    settings += [f"reward.model=[{{checkpoint_path: {model}, weight: 2.0}},{bonus}]", f"algorithm.name={algorithm}"]
    settings += ["algorithm.sac.learning_starts=0", "algorithm.sac.rollout_steps=5", "algorithm.sac.utd_ratio=0.1"]
    train(out, *settings, "runner.max_epochs=2")
    for row in history(out):
        assert row["audit/fpr"] >= 0
        novelty = 3 * row["reward_model/rnd_mean"]
        assert novelty > 0
        assert 0 < row["rollout/rewards"] - novelty < 2  # twice a probability
        assert row["rollout/rewards"] == pytest.approx(row["rollout/model_rewards"], rel=1e-4)


def test_checkpoints_that_let_no_episode_end_are_warned_about(tmp_path: Path) -> None:
    settings = ["env.train.max_episode_steps=50", "runner.save_interval=2", "runner.max_epochs=3"]
    with pytest.warns(UserWarning, match=r"runner.save_interval: .* after 20 steps.*limit of 50.* set it to 5 or more"):
        train(tmp_path / "run", *settings)
