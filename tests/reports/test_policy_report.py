"""The report of a policy run: what happened, what the audit saw, and nothing that the history does not hold."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rewardlab.errors import DataError
from rewardlab.figures.metrics import FrameScores
from rewardlab.figures.trust import TrustFigures, assess
from rewardlab.reports import policy_report
from rewardlab.reports.history import read_history
from rewardlab.reports.plots import run_plot
from rewardlab.reports.policy_report import Comparison, write_policy_report
from rewardlab.rewards.audit import Alarm

EVIL = "<script>alert('x')</script>"


def make_history(count: int = 40) -> list[dict[str, float]]:
    rows = []
    for i in range(1, count + 1):
        row = {"iteration": i, "env_steps": 100 * i, "env/success_at_end": i / count, "rollout/rewards": 0.1 * i}
        row |= {"audit/fpr": 0.02, "audit/precision": 0.9, "audit/claimed": 0.5, "time/rollout": 0.3, "time/learn": 0.1}
        row |= {"time/rollout/waiting": 0.15}
        rows.append(row | ({"eval/success_at_end": i / count} if i % 10 == 0 else {}))
    return rows


def make_figures() -> TrustFigures:
    episode, time = np.repeat(np.arange(12), 10), np.tile(np.arange(10), 12)
    return assess(FrameScores(episode, time, time >= 6, np.where(time >= 6, 4.0, -4.0), tuple("abcdefghijkl")))


def write_frames(directory: Path) -> None:
    for kind, iterations in (("false_positive", range(1, 20)), ("claimed", range(1, 3))):
        (directory / kind).mkdir(parents=True)
        for i in iterations:
            picture = Image.fromarray(np.full((8, 8, 3), i, dtype=np.uint8))
            picture.save(directory / kind / f"{i:06d}_0_prob0.{i:04d}.png")
    (directory / "false_positive" / "000099_0_prob0.9000.png").write_bytes(b"\x89PNG cut off")
    (directory / "false_positive" / "notes.txt").write_text("not a frame")


def text_of(path: Path) -> str:
    html = re.sub(r'src="data:[^"]*"', "", path.read_text())
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html).replace("&nbsp;", " "))


def test_a_whole_report(tmp_path: Path) -> None:
    write_frames(tmp_path / "audit")
    path = write_policy_report(
        tmp_path / "report.html",
        title=f"PPO {EVIL}",
        history=make_history(),
        stages=[("own reward", 0), ("learned", 2000)],
        alarms=[Alarm("false_positives", 12, f"30.0 % {EVIL}", 0.3)],
        max_fpr=0.1,
        disputed=tmp_path / "audit",
        figures=make_figures(),
        comparison=[Comparison(0, 0.9, 0.95), Comparison(1, 0.8, 0.75)],
        facts={"seed": EVIL},
    )
    html, text = path.read_text(), text_of(path)
    assert "<script" not in html
    assert "http" not in html
    assert "1 alarm of the audit" in text
    assert "After 4,000 environment steps, 100 % of the episodes of the last evaluation end in success" in text
    assert "first reached 50.0 % after 2,000 steps, 90.0 % after 4,000 steps" in text
    assert "Iteration 12 (1,200 steps), false positives: 30.0 %" in text
    assert "0 90.0 % 95.0 % -5.0 1 80.0 % 75.0 % +5.0 mean 85.0 % 85.0 % +0.0" in text
    assert re.findall(r'<img [^>]*alt="([^"]+)"', html)[:4] == [
        "True success",
        "Reward a step",
        "False-positive rate on the policy&#39;s frames",
        "Precision and recall on the policy&#39;s frames",
    ]


def test_galleries_show_the_newest_frames_that_can_be_read(tmp_path: Path) -> None:
    write_frames(tmp_path / "audit")
    path = write_policy_report(
        tmp_path / "report.html", title="t", history=make_history(2), disputed=tmp_path / "audit", facts={}
    )
    html = path.read_text()
    positives = html.split("<h2>False positives</h2>")[1].split("</section>")[0]
    assert re.findall(r"<b>p = ([0-9.]+)</b>iteration (\d+)", positives)[0] == ("0.0019", "19")
    assert positives.count("<figure>") == 12
    assert html.split("<h2>Called success</h2>")[1].count("<figure>") == 2
    assert "<h2>False negatives</h2>" not in html


def test_held_out_figures_stand_beside_those_on_policy(tmp_path: Path) -> None:
    figures = make_figures()
    path = write_policy_report(tmp_path / "r.html", title="t", history=make_history(), figures=figures, facts={})
    text = text_of(path)
    assert figures.sentence() in text
    assert re.search(r"False-positive rate failure frames called success 0 % \[0, [0-9.]+\] 2\.0 %", text)
    assert re.search(r"Recall success frames called success 100 % \[[0-9.]+, 100\] n/a", text)


def test_time_is_shared_out_once(tmp_path: Path) -> None:
    path = write_policy_report(tmp_path / "r.html", title="t", history=make_history(), facts={})
    text = text_of(path)
    assert "16.0 s in 40 iterations, 250 environment steps a second" in text
    assert "rollout 12.0 s 75.0 % 300 ms of it, waiting 6.0 s 37.5 % 150 ms learn 4.0 s 25.0 % 100 ms" in text


def test_a_resumed_stage_is_not_credited_with_the_steps_before_it(tmp_path: Path) -> None:
    path = write_policy_report(tmp_path / "r.html", title="t", history=make_history()[20:], facts={})
    assert "8.0 s in 20 iterations, 250 environment steps a second" in text_of(path)


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ([], "The run ended before its first iteration."),
        ([{"iteration": 1, "env_steps": 50}], "no episode had ended whose success is known"),
        ([{"iteration": 1, "env_steps": 50, "env/return": 12.5}], "an episode returns 12.5"),
        ([{"iteration": 1, "env_steps": 50, "env/success_at_end": 0.25}], "25.0 % of training episodes end in success"),
    ],
)
def test_a_run_without_learned_reward_or_success(history: list[dict[str, float]], words: str, tmp_path: Path) -> None:
    path = write_policy_report(tmp_path / "r.html", title="t", history=history, facts={})
    text = text_of(path)
    assert words in text
    assert "No learned reward was audited" in text
    assert "Audit of the learned reward" not in text
    assert "<h2>Time" not in path.read_text()


def test_without_truth_the_audit_shows_drift_and_says_so(tmp_path: Path) -> None:
    history = [{"iteration": i, "env_steps": i, "audit/claimed": 0.1, "audit/drift": 0.3} for i in range(1, 4)]
    path = write_policy_report(tmp_path / "r.html", title="t", history=history, facts={})
    assert "Distance of scores from held-out ones" in path.read_text()
    assert "verdicts can only be counted" in text_of(path)


def test_workers_that_were_replaced_are_listed_with_their_iterations(tmp_path: Path) -> None:
    rows = [{"iteration": n, "env_steps": 10.0 * n} for n in (1, 12, 13)]
    rows[1] |= {"replaced/env_1": 1.0, "replaced/rollout_0": 2.0}
    rows[2] |= {"went_back/actor_0": 3.0}
    html = write_policy_report(tmp_path / "report.html", title="t", history=rows, facts={}).read_text()
    assert re.findall(r"<li>(Iteration .+?)</li>", html) == [
        "Iteration 12: env worker 1 was replaced; its rollout was made again",
        "Iteration 12: rollout worker 0 was replaced 2 times; its rollout was made again",
        "Iteration 13: the learner was replaced and the run went back to the checkpoint of iteration 12; "
        "iterations 13 to 15 were made again",
    ]


def test_the_same_curves_are_drawn_once(tmp_path: Path) -> None:
    same = [{"iteration": 1, "env_steps": 1, "rollout/rewards": 1.0, "rollout/model_rewards": 1.0}]
    other = [{"iteration": 1, "env_steps": 1, "rollout/model_rewards": 1.0}]
    first, second = (
        write_policy_report(tmp_path / f"{n}.html", title="t", history=history, facts={}).read_bytes()
        for n, history in enumerate((same, other))
    )
    assert first == second


def test_plots_are_reproducible_and_show_what_is_asked_for() -> None:
    curves = {"a": [(float(i), i % 7 / 7) for i in range(300)]}
    plain = run_plot("t", curves)
    assert plain == run_plot("t", curves)
    asked = [{"limit": ("limit", 0.1)}, {"stages": [("second", 100.0)]}, {"alarms": [50.0]}, {"shares": True}]
    assert len({plain, *(run_plot("t", curves, **extra) for extra in asked)}) == 5  # type: ignore[arg-type]


# metrics.jsonl


def test_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    rows = make_history(3)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_history(path) == rows


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_last_line_that_a_kill_cut_off_is_left_out(cut: int, tmp_path: Path) -> None:
    rows = make_history(3)
    path = tmp_path / "metrics.jsonl"
    text = "\n".join(json.dumps(row) for row in rows)
    path.write_text(text[:-cut])
    assert read_history(path) == rows[:2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"iteration": 1, "env_\n{"iteration": 2, "env_steps": 3}\n', "line 1: not valid JSON"),
        ('{"iteration": 1}\n', "line 1: expected an object with 'iteration' and 'env_steps', two numbers"),
        ("[1, 2]\n", "line 1: expected an object"),
    ],
)
def test_other_faults_of_a_history_are_named(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(text)
    with pytest.raises(DataError, match=words):
        read_history(tmp_path / "metrics.jsonl")


def test_a_missing_history_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"metrics\.jsonl: cannot be read"):
        read_history(tmp_path / "metrics.jsonl")


def test_models_over_transitions_are_drawn_by_name(tmp_path: Path) -> None:
    history = [
        {
            "iteration": i,
            "env_steps": 10 * i,
            "reward_model/rnd_mean": 1 / i,
            "reward_model/rnd_loss": 2 / i,
            "eval/return": i,
        }
        for i in range(1, 4)
    ]
    page = write_policy_report(tmp_path / "report.html", title="t", history=history, facts={}).read_text()
    assert "<h2>Reward models</h2>" in page
    assert "evaluation episodes return 3 of the environment" in page
    without = [{"iteration": 1, "env_steps": 10, "env/return": 1.0}]
    assert (
        "Reward models"
        not in write_policy_report(tmp_path / "plain.html", title="t", history=without, facts={}).read_text()
    )


def test_rates_of_the_audit_are_of_frames_not_of_iterations() -> None:
    many = {"iteration": 1, "env_steps": 1, "audit/claimed": 0.2, "audit/success": 0.1, "audit/fpr": 0.1}
    few = {"iteration": 2, "env_steps": 2, "audit/claimed": 0.9, "audit/success": 0.9, "audit/fpr": 0.5}
    assert policy_report._pooled([many, few], "fpr") == pytest.approx(0.9 * 0.1 + 0.1 * 0.5)
    assert policy_report._pooled([{"iteration": 1, "env_steps": 1, "audit/claimed": 1.0}], "fpr") is None
