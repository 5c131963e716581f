"""The progress bar fits a terminal of 80 columns, whatever a run has to say."""

import io

from rich.console import Console

from rewardlab.console import make_progress
from rewardlab.pipelines.train_policy import _progress_line

FIGURES = {"env_steps": 123_456_789, "env/success_at_end": 1.0, "eval/success_at_end": 1.0, "audit/fpr": 0.5}


def line(words: str, width: int, total: int = 1000) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    progress = make_progress(console)
    progress.add_task("training", total=total, completed=total // 2, words=words)
    console.print(progress.get_renderable())
    (only,) = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return str(only)


def test_a_line_of_a_policy_run_fits_80_columns() -> None:
    words = _progress_line({**FIGURES, "rollout/model_rewards": 0.25}, True)
    shown = line(words, 80)
    assert len(shown) <= 80
    for part in ("training", "500/1000", "left", "ALARM", "success 100%"):
        assert part in shown
    assert "eval 100% FPR 50% reward 0.25 123M steps" in line(words, 120)


def test_what_does_not_fit_is_cut_off_behind_the_time_left() -> None:
    shown = line("many words " * 20, 60)
    assert len(shown) <= 60
    assert "left many" in shown
    assert shown.rstrip().endswith("…")
