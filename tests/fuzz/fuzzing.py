"""What all fuzz targets share: mutations that follow from a seed, and the judge of a case.

A case is a command line beside the files that it reads. It follows from a seed, the target's name and a number, so that
these three bring it back: `make fuzz CASE=configs:0:17`.
"""

import contextlib
import io
import os
import random
import resource
import shutil
import signal
import struct
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rewardlab.cli import main

SECONDS = 5.0  # of CPU that a case may take
BYTES = 2 * 10**9  # of memory that a case may take
CANARY = "canary"  # a module in the current directory that leaves a mark when it is imported
MARK = "canary_was_run"

NASTY: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", " ", "\0", "a\0b", "x" * 300, "x" * 6000, "é", "\udcff", "\x1b[31mred\x1b[0m", "\x1b]0;title\a", "[red]x[/]"),
    *(
        "[/nope]",
        "\u202e",
        "???",
        "${seed}",
        "${",
        "${oc.env:HOME}",
        "nan",
        "-1",
        "1e999",
        "../..",
        "/",
        ".",
        "/dev/null",
    ),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": {"c": []}}}, [1, 2, 3], [-1, 0], ["nope"], {"x": 1}),
]


@dataclass(frozen=True)
class Case:
    """A command, run in process. `may_ask_for_memory`: the user asked for that size, so that a line is the answer."""

    arguments: list[str]
    may_ask_for_memory: bool = False


@dataclass(frozen=True)
class Target:
    """A kind of input. `prepare` makes valid files in a directory, once; `draw` mutates copies of them."""

    name: str
    prepare: Callable[[Path], None]
    draw: Callable[[random.Random, Path, Path], Case]  # random numbers, the valid files, an empty directory to work in


class TooSlow(BaseException):
    """The case has used up its time. Not an Exception, so that nothing takes it for an error of the input."""


def fuzz(target: Target, place: Path, seed: str, seconds: float, numbers: Iterator[int]) -> int:
    """Try cases until the time is up and return their number; raise with one case of each kind that failed."""
    valid, work = place / "valid", place / "work"
    valid.mkdir()
    target.prepare(valid)
    end = time.monotonic() + seconds
    failed: dict[str, str] = {}
    count = 0
    for number in numbers:
        case_name = f"{target.name}:{seed}:{number}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        with contextlib.chdir(work):
            (work / f"{CANARY}.py").write_text(f"open({str(place / MARK)!r}, 'w')\n")
            case = target.draw(random.Random(f"{seed}:{target.name}:{number}"), valid, work)
            problem = judge(case, place / MARK)
        if problem is not None and (kind := _kind(problem)) not in failed:
            files = keep(work, case_name)
            words = f"command: rewardlab {case.arguments!r}\nfiles: {files}\nagain: make fuzz CASE={case_name}"
            failed[kind] = f"{problem}\n{words}"
        count += 1
        if time.monotonic() > end:
            break
    assert not failed, f"{len(failed)} kinds of failure in {count} cases\n\n" + "\n\n".join(failed.values())
    return count


def _kind(problem: str) -> str:
    """Return what failures with one cause have in common: what was raised, and where in rewardlab."""
    lines = problem.strip().splitlines()
    places = [line for line in lines if "/rewardlab/" in line]
    return " ".join((lines[0], *places[-1:], lines[-1][:30]))


def judge(case: Case, mark: Path) -> str | None:
    """Run a case and return what is wrong with its outcome; None if nothing is."""
    out, err = io.StringIO(), io.StringIO()
    before, peak, begin = _attributes(), _peak_bytes(), time.process_time()
    status: Any = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _limits():
            status = main(case.arguments)
    except SystemExit as error:  # argparse
        status = error.code
    except TooSlow:
        return f"more than {SECONDS:g} s of CPU\n{traceback.format_exc()}"
    except BaseException:
        return f"a traceback\n{traceback.format_exc()}"
    took, grew = time.process_time() - begin, _peak_bytes() - peak
    text = out.getvalue() + err.getvalue()
    if took > SECONDS:
        return f"{took:.1f} s of CPU"
    if grew > BYTES or ("not enough memory" in text and not case.may_ask_for_memory):
        return f"more than {BYTES / 1e9:g} GB of memory\n{text[-2000:]}"
    if mark.exists() or CANARY in sys.modules:
        return "code of the input was run"
    if (changed := _changed(before, _attributes())) is not None:
        return f"{changed} was changed in the running process"
    if "Traceback" in text:
        return f"a traceback in the output\n{text[-4000:]}"
    if codes := {c for c in text if not c.isprintable() and c not in "\n\t"}:
        return f"codes for the terminal in the output: {codes!r}\n{text[-2000:]!r}"
    if status not in (0, 1, 2):
        return f"status {status!r}"
    if status and not text.strip():
        return f"status {status} without a word"
    return None


def keep(work: Path, case_name: str) -> Path:
    """Copy the files of a case that failed to where they stay."""
    place = Path(os.environ.get("FUZZ_FAILURES", "fuzz_failures")).absolute() / case_name.replace(":", "-")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(work, place, symlinks=True)
    return place


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """End a case that takes too long, and let allocations beyond the budget fail."""

    def stop(*_: object) -> None:
        raise TooSlow

    handler = signal.signal(signal.SIGPROF, stop)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        signal.signal(signal.SIGPROF, handler)


def _data_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmData")).split()[1])


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# What an unpickler may name, and what a file that gets hold of it would like to change.
_WATCHED = ("rewardlab.keys", "rewardlab.errors", "rewardlab.data.episodes", "collections", "torch._utils", "builtins")


def _attributes() -> dict[str, int]:
    found = {}
    for name in _WATCHED:
        for key, value in vars(sys.modules[name]).items() if name in sys.modules else ():
            if not isinstance(value, types.ModuleType):
                found[f"{name}.{key}"] = id(value)
    for cls in (torch.FloatStorage, torch.UntypedStorage, torch.Tensor, torch.Size, np.dtype, np.ndarray):
        for key in vars(cls):
            found[f"{cls.__name__}.{key}"] = 0
    return found


def _changed(before: dict[str, int], after: dict[str, int]) -> str | None:
    new = {key for key in after if key not in before and key.partition(".")[0] not in ("rewardlab",)}
    other = {key for key in before if before[key] != after.get(key, before[key]) and not key.startswith("builtins._")}
    return next(iter(sorted(new | other)), None)


# -- mutations -------------------------------------------------------------------------------------------------------


def mutate_bytes(rng: random.Random, content: bytes, other: bytes = b"") -> bytes:
    """Damage some bytes: bits, blocks, lengths, the end, or a piece of another file in the middle."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 12))):
        at = rng.randrange(len(data) + 1)
        size = rng.choice((1, 4, 8, 100))
        kind = rng.randrange(8)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at : at + size] = rng.randbytes(size)
        elif kind == 2:
            del data[at : at + size]
        elif kind == 3:
            data[at:at] = data[at : at + size]
        elif kind == 4:
            number = rng.choice((0, 1, -1, 255, 2**31 - 1, 2**40, 2**63 - 1))
            data[at : at + 8] = struct.pack("<q", number)
        elif kind == 5:
            del data[at:]
        elif kind == 6 and other:
            begin = rng.randrange(len(other))
            data[at:at] = other[begin : begin + 1000]
        else:
            inserted = (b"\0" * 64, b"\xff" * 64, b"[" * 3000, b"{" * 3000, b"9" * 5000, b"-", b"NaN", b"(")
            data[at:at] = rng.choice(inserted)
    return bytes(data)


def mutate_tree(rng: random.Random, tree: Any) -> Any:
    """Return nested dictionaries and lists in which something is of another kind, gone, new or far too deep."""
    places = list(_places(tree))
    for _ in range(rng.choice((1, 1, 2, 5))):
        if not places:
            return nasty(rng)
        parent, key = rng.choice(places)
        kind = rng.randrange(6)
        try:
            if kind == 0:
                del parent[key]
            elif kind == 1 and isinstance(parent, dict):
                parent[str(nasty(rng))] = parent.pop(key)
            elif kind == 2:
                parent[key] = deep(rng)
            elif kind == 3:
                parent[key] = [parent[key]] * rng.choice((1, 2, 50))
            else:
                parent[key] = nasty(rng)
        except (KeyError, IndexError):  # an earlier mutation took it away
            continue
    return tree


def nasty(rng: random.Random) -> Any:
    return rng.choice(NASTY)


def deep(rng: random.Random) -> Any:
    value: Any = 1
    for _ in range(rng.choice((5, 40, 200))):
        value = {"a": value} if rng.random() < 0.5 else [value]
    return value


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield tree, key
        yield from _places(value)
