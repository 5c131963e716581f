"""Which number format a device can compute in, and which is the faster one."""

import functools
import subprocess
import sys
import threading
import warnings
from typing import Literal, TypeAlias

import torch

Precision: TypeAlias = Literal["fp32", "bf16", "auto"]  # auto: the faster of the two

# A smaller gain is not worth the lost accuracy, and within what a busy machine measures.
FASTER, MUCH_SLOWER = 1.1, 0.67

# Forward and backward of the layers a ResNet has, in both memory layouts. Formats take turns, and the best of several
# turns counts: another process on the same cores makes single turns slower, never faster.
_PROBE = """
import sys, time, torch
from torch.nn import functional as F
torch.set_num_threads(int(sys.argv[1]))

def turn(dtype):
    begin = time.perf_counter()
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.ones(8, 64, 16, 16, dtype=dtype).contiguous(memory_format=layout).requires_grad_()
        for size in (1, 3):
            w = torch.ones(64, 64, size, size, dtype=dtype, requires_grad=True)
            F.conv2d(x, w, padding=size // 2).sum().backward()
    v = torch.ones(64, 512, dtype=dtype, requires_grad=True)
    F.linear(v, torch.ones(256, 512, dtype=dtype, requires_grad=True)).sum().backward()
    return time.perf_counter() - begin

formats = (torch.float32, torch.bfloat16)
turns = [[turn(dtype) for dtype in formats] for _ in range(6)][1:]
fp32, bf16 = map(min, zip(*turns))
sys.stdout.write(str(fp32 / bf16))
"""
_lock = threading.Lock()


def bf16_speed(device: torch.device) -> float:
    """Return how fast bf16 is, relative to fp32: 0 where it does not work, 10 where it is ten times as fast.

    On a CPU that is measured, once per process. An accelerator with bf16 in its hardware is taken to be faster in it.
    """
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return 2.0
        return 0.5 if torch.cuda.is_bf16_supported() else 0.0
    if device.type != "cpu":
        return 2.0
    with _lock:  # reward workers in threads ask at the same time
        return _cpu_bf16_speed()


@functools.cache
def _cpu_bf16_speed() -> float:
    """Measure it in a child process, which may die and has random numbers of its own.

    Virtual machines may announce AMX without having it: oneDNN then takes the whole process down with SIGILL.
    """
    command = [sys.executable, "-c", _PROBE, str(torch.get_num_threads())]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return float(child.stdout) if child.returncode == 0 else 0.0
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0.0


def compute_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """Return the dtype to compute in.

    With bf16, a warning says where it does not work, and computes in float32, or where it is much slower than fp32.
    """
    if precision == "fp32":
        return torch.float32
    speed = bf16_speed(device)
    if precision == "auto":
        return torch.bfloat16 if speed >= FASTER else torch.float32
    if speed == 0:
        warnings.warn(f"precision: bf16 does not work on this {device.type} device; computing in fp32", stacklevel=2)
        return torch.float32
    if speed < MUCH_SLOWER:
        warnings.warn(
            f"precision: bf16 is {1 / speed:.1f} times slower than fp32 on this {device.type} device; auto takes the "
            "faster of the two",
            stacklevel=2,
        )
    return torch.bfloat16
