"""bf16 is tried in a child process first: a CPU that announces it and cannot do it must not take the run down."""

import signal
import sys
from pathlib import Path

import pytest
import torch

from rewardlab.models import precision


@pytest.fixture(autouse=True)
def ask_again() -> None:
    precision.cpu_runs_bf16.cache_clear()


def test_a_dying_child_means_fp32_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_PROBE", f"import os; os.kill(os.getpid(), {int(signal.SIGILL)})")
    with pytest.warns(UserWarning, match="bf16 does not work.*fp32"):
        assert precision.compute_dtype("bf16", torch.device("cpu")) == torch.float32


def test_a_living_child_means_bf16_and_is_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "asked"
    monkeypatch.setattr(precision, "_PROBE", f"open({str(log)!r}, 'a').write('x')")
    for _ in range(2):
        assert precision.compute_dtype("bf16", torch.device("cpu")) == torch.bfloat16
    assert log.read_text() == "x"


def test_fp32_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    assert precision.compute_dtype("fp32", torch.device("cpu")) == torch.float32
    with pytest.warns(UserWarning, match="fp32"):
        assert precision.compute_dtype("bf16", torch.device("cpu")) == torch.float32
