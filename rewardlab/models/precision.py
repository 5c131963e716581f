"""Which number format a device can really compute in."""

import functools
import subprocess
import sys
import warnings
from typing import Literal, TypeAlias

import torch

Precision: TypeAlias = Literal["fp32", "bf16"]

# Forward and backward of the layers a ResNet has, in both memory layouts.
_PROBE = """
import torch
from torch.nn import functional as F
for layout in (torch.contiguous_format, torch.channels_last):
    x = torch.randn(8, 64, 16, 16, dtype=torch.bfloat16).contiguous(memory_format=layout).requires_grad_()
    for size in (1, 3):
        w = torch.randn(64, 64, size, size, dtype=torch.bfloat16, requires_grad=True)
        F.conv2d(x, w, padding=size // 2).sum().backward()
v = torch.randn(64, 512, dtype=torch.bfloat16, requires_grad=True)
F.linear(v, torch.randn(256, 512, dtype=torch.bfloat16, requires_grad=True)).sum().backward()
"""


@functools.cache
def cpu_runs_bf16() -> bool:
    """Whether bf16 convolutions work on this CPU; asked once per process, in a child that may die.

    Virtual machines may announce AMX without having it: oneDNN then takes the whole process down with SIGILL.
    """
    try:
        return subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, timeout=120).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def compute_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """The dtype to compute in; float32 with a warning where bf16 was asked for and does not work."""
    if precision == "fp32":
        return torch.float32
    works = torch.cuda.is_bf16_supported() if device.type == "cuda" else device.type != "cpu" or cpu_runs_bf16()
    if works:
        return torch.bfloat16
    warnings.warn(f"precision: bf16 does not work on this {device.type} device; computing in fp32", stacklevel=2)
    return torch.float32
