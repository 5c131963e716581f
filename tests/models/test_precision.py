"""bf16 is tried in a child process first: a CPU that announces it and cannot do it must not take the run down, and one
that computes it slowly must not slow the run down without a word."""

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rewardlab.models import precision
from rewardlab.models.precision import Precision, compute_dtype

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def ask_again() -> Iterator[None]:
    precision._cpu_bf16_speed.cache_clear()
    yield
    precision._cpu_bf16_speed.cache_clear()


def test_a_dying_child_means_fp32_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_PROBE", f"import os; os.kill(os.getpid(), {int(signal.SIGILL)})")
    with pytest.warns(UserWarning, match="bf16 does not work.*fp32"):
        assert compute_dtype("bf16", CPU) == torch.float32
    assert compute_dtype("auto", CPU) == torch.float32


def test_the_child_is_asked_once_also_by_several_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "asked"
    monkeypatch.setattr(precision, "_PROBE", f"open({str(log)!r}, 'a').write('x'); print(1.7)")
    threads = [threading.Thread(target=compute_dtype, args=("bf16", CPU)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compute_dtype("bf16", CPU) == torch.bfloat16
    assert log.read_text() == "x"


@pytest.mark.parametrize(
    ("speed", "asked", "expected"),
    [
        (0.1, "auto", torch.float32),
        (1.0, "auto", torch.float32),  # as fast: the more accurate one
        (1.7, "auto", torch.bfloat16),
        (0.9, "bf16", torch.bfloat16),
        (1.7, "bf16", torch.bfloat16),
    ],
)
def test_auto_takes_the_faster_without_a_warning(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder, speed: float, asked: Precision, expected: object
) -> None:
    monkeypatch.setattr(precision, "_PROBE", f"print({speed})")
    assert compute_dtype(asked, CPU) == expected
    assert not recwarn.list


def test_a_slow_bf16_that_was_asked_for_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_PROBE", "print(0.1)")
    with pytest.warns(UserWarning, match=r"^precision: bf16 is 10\.0 times slower than fp32.*auto.*$"):
        assert compute_dtype("bf16", CPU) == torch.bfloat16


def test_a_cpu_without_bf16_is_found_to_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN told to use AVX2 converts every number: 8 to 20 times slower, as on CPUs without bf16."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert compute_dtype("auto", CPU) == torch.float32
    assert torch.equal(torch.get_rng_state(), before)


def test_fp32_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    assert compute_dtype("fp32", CPU) == torch.float32
    with pytest.warns(UserWarning, match="fp32"):
        assert compute_dtype("bf16", CPU) == torch.float32
