"""Ctrl-C and SIGTERM: every kind of run writes its state and prints the command that continues it."""

import re
import shlex
import signal
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from cli_process import CliProcess
from policy_runs import SAC, SMALL, history, learned
from test_training_faults import command as classifier_command
from test_training_faults import write_episodes

from rewardlab.cli import main
from rewardlab.data import read_episodes, verify
from rewardlab.rewards.checkpoint import read_checkpoint
from rewardlab.run_state import list_checkpoints, load_state

ENDLESS = ["runner.max_epochs=100000", "runner.save_interval=100000", "runner.val_check_interval=100000"]
ASYNC = [*SAC, "algorithm.asynchronous.enabled=true"]


def policy_command(out: Path, *overrides: str) -> list[str]:
    where = [f"runner.logger.log_path={out.parent}", f"runner.logger.experiment_name={out.name}"]
    return ["run", "tabletop_ppo_mlp", *SMALL, *where, *ENDLESS, *overrides]


def printed_command(said: str) -> list[str]:
    """The arguments of the command behind `continue:`."""
    found = re.search(r"continue: rewardlab (.*?) interrupted", said)
    assert found is not None, said
    return shlex.split(found[1])


@pytest.mark.parametrize(
    ("number", "status", "kind"),
    [(signal.SIGINT, 130, []), (signal.SIGTERM, 143, []), (signal.SIGTERM, 143, ASYNC)],
    ids=["Ctrl-C", "SIGTERM", "asynchronous"],
)
def test_a_policy_run_ends_with_a_checkpoint_and_a_report(
    number: int, status: int, kind: list[str], tmp_path: Path, fork_server: ForkServerContext
) -> None:
    out = tmp_path / "run"
    run = CliProcess(fork_server, tmp_path / "said", *policy_command(out, *kind))
    run.wait_for(out, "metrics.jsonl")
    run.send(number)
    assert run.join() == status
    done = len(history(out))
    newest = list_checkpoints(out / "checkpoints")[-1]
    assert newest.name == f"global_step_{done}"  # every iteration is in it
    assert f"after iteration {done}" in (out / "report.html").read_text()
    assert main([*printed_command(run.said), f"runner.max_epochs={done + 1}"]) == 0
    assert [row["iteration"] for row in history(out)] == list(range(1, done + 2))


@pytest.mark.usefixtures("without_drawing")
def test_a_second_signal_ends_at_once_and_the_name_is_free(
    tmp_path: Path, fork_server: ForkServerContext, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    run = CliProcess(
        fork_server, tmp_path / "said", *policy_command(out, "algorithm.ppo.update_epochs=1000000", "seed=3")
    )
    run.wait_for(out, "events.*")  # the iteration that never ends has begun
    run.send(signal.SIGINT)
    run.wait_for_words("a second one ends it at once")
    while "ended at once" not in run.said:
        run.send(signal.SIGINT)  # within half a second of the first it is still the first
    assert run.join() == 130
    assert not (out / "checkpoints").exists() or not list_checkpoints(out / "checkpoints")
    assert main(policy_command(out, "runner.max_epochs=1")) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"an earlier run here ended before its first checkpoint; what it left is now in {out}/earlier_1" in said
    assert list((out / "earlier_1").glob("events.*"))


def test_a_classifier_goes_on_in_the_middle_of_an_epoch_to_the_same_weights(
    tmp_path: Path, fork_server: ForkServerContext
) -> None:
    data, out, steps = write_episodes(tmp_path / "data", 8), tmp_path / "run", "runner.max_steps=200"
    run = CliProcess(fork_server, tmp_path / "said", *classifier_command(data, out, "runner.max_epochs=100", steps))
    run.wait_for(out, "checkpoints/best_model")
    run.send(signal.SIGTERM)
    assert run.join() == 143
    done = load_state(out / "checkpoints" / "last")[0]["progress"]["step"]
    assert f"after step {done}" in run.said
    assert done < 200
    assert (out / "report.html").is_file()
    assert main(printed_command(run.said)) == 0
    assert main(classifier_command(data, tmp_path / "unbroken", "runner.max_epochs=100", steps)) == 0
    ends = [load_state(place / "checkpoints" / "last")[0] for place in (out, tmp_path / "unbroken")]
    assert all(ends[0]["network"][name].equal(tensor) for name, tensor in ends[1]["network"].items())
    rows = [history(place) for place in (out, tmp_path / "unbroken")]
    assert [row["iteration"] for row in rows[0]] == [row["iteration"] for row in rows[1]]
    assert rows[0][-1]["valid/loss"] == rows[1][-1]["valid/loss"]
    best = [read_checkpoint(place / "checkpoints" / "best_model").weights for place in (out, tmp_path / "unbroken")]
    assert all(best[0][name].equal(tensor) for name, tensor in best[1].items())


def test_a_collection_goes_on_where_it_was(tmp_path: Path, fork_server: ForkServerContext) -> None:
    out = tmp_path / "data"
    size = ["env.train.image_size=[3,16,16]", "env.train.max_episode_steps=5", "env.train.num_envs=4"]
    arguments = ["collect", "tabletop_pickcube", "--episodes", "100000", "--out", str(out), *size]
    run = CliProcess(fork_server, tmp_path / "said", *arguments)
    run.wait_for(out, "*/*.safetensors")
    run.send(signal.SIGTERM)
    assert run.join() == 143
    kept = len(read_episodes(out))
    assert [row["iteration"] for row in history(out)][-1] == kept
    again = printed_command(run.said)
    assert again[-2:] == ["--episodes", str(100_000 - kept)]
    assert main([*again[:-1], "3"]) == 0
    assert len(read_episodes(out)) == kept + 3
    assert verify(out) == []
    assert [row["iteration"] for row in history(out)][-1] == kept + 3


@pytest.mark.usefixtures("without_drawing")
def test_the_stop_of_an_alarm_has_a_status_of_its_own(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["reward.reward_mode=per_step", "reward.reward_threshold=0.001", "reward.audit.window=5"]
    out = tmp_path / "run"
    assert main(policy_command(out, *learned(model, *settings, "reward.audit.on_alarm=stop"))) == 3
    told = capsys.readouterr()
    assert told.err.strip().startswith("stopped: the audit raised an alarm")
    newest = list_checkpoints(out / "checkpoints")[-1]
    said = " ".join(told.out.split())
    assert f"report: {out}/report.html" in said
    assert f"continue: rewardlab run {out}/config.yaml runner.resume_dir={newest}" in said
