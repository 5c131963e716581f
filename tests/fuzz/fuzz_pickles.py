"""Pickles that would run code, change the process or grow without end, where data and weights are expected."""

import io
import pickle
import pickletools
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

from fuzzing import CANARY, Case, Target, mutate_bytes, nasty
from valid_files import write_classifier, write_episodes

GLOBALS = (
    *("os system", "builtins eval", "builtins getattr", "builtins setattr", "builtins exec", "subprocess Popen"),
    *(f"{CANARY} x", "importlib import_module", "operator attrgetter", "functools partial", "types SimpleNamespace"),
    *("collections OrderedDict", "torch._utils _rebuild_tensor_v2", "torch FloatStorage", "torch load", "torch Size"),
    *("numpy dtype", "numpy ndarray", "numpy._core.multiarray _reconstruct", "numpy.core.multiarray scalar"),
    *("numpy load", "_codecs encode", "copyreg _reconstructor", "rewardlab.keys SUCCESS_KEYS", "rewardlab.cli main"),
)
OPCODES = [opcode for opcode in pickletools.opcodes if opcode.arg is None]


def _prepare(valid: Path) -> None:
    write_episodes(valid / "pickle", "pickle")
    write_classifier(valid / "model")
    write_episodes(valid / "episodes")


def _draw(rng: random.Random, valid: Path, work: Path) -> Case:
    source = sorted((valid / "pickle").rglob("*.pkl"))[0].read_bytes()
    makers = (_program, _program, _program, _bomb, lambda rng: _spliced(rng, source), lambda rng: _nasty_content(rng))
    content = rng.choice(makers)(rng)
    form = rng.choice(("pkl", "pkl", "pkl", "npy", "pt", "zip"))
    if form == "pkl":
        (work / "episode.pkl").write_bytes(content)
        return Case(rng.choice((["data", "info", "."], ["data", "verify", "."], ["data", "process", "episode.pkl"])))
    if form == "npy":  # a header that says: an object follows, as a pickle
        header = b"{'descr': '|O', 'fortran_order': False, 'shape': (), }".ljust(117) + b"\n"
        (work / "episode.npy").write_bytes(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + content)
        return Case(["data", rng.choice(("info", "verify")), "."])
    if form == "zip":
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as file:
            file.writestr("archive/data.pkl", content)
            file.writestr("archive/version", "3\n")
            file.writestr("archive/data/0", b"\0" * rng.choice((4, 4000)))
        content = archive.getvalue()
    (work / "model.pt").write_bytes(content)
    return Case(["score", "model.pt", str(valid / "episodes")])


def _program(rng: random.Random) -> bytes:
    """Return opcodes in any order, with calls, attributes and items among them."""
    out = bytearray(b"\x80\x04")
    for _ in range(rng.choice((3, 10, 40))):
        kind = rng.randrange(9)
        if kind == 0:
            module, name = rng.choice(GLOBALS).split()
            out += b"c" + module.encode() + b"\n" + name.encode() + b"\n"
        elif kind == 1:
            text = str(nasty(rng)).encode("utf-8", "surrogatepass")[:200]
            out += b"X" + struct.pack("<I", len(text)) + text
        elif kind == 2:
            out += b"K" + bytes([rng.randrange(256)])
        elif kind == 3:
            out += rng.choice((b"(", b")", b"]", b"}", b"N", b"\x8f", b"\x94"))
        elif kind == 4:  # what builds objects: REDUCE, BUILD, NEWOBJ, OBJ, tuples, items
            building = (b"R", b"b", b"\x81", b"o", b"\x92", b"t", b"\x85", b"\x86", b"\x87", b"s", b"u", b"a", b"e")
            out += rng.choice(building)
        elif kind == 5:
            out += b"h" + bytes([rng.randrange(8)])
        elif kind == 6:
            module, name = rng.choice(GLOBALS).split()
            words = b"X" + struct.pack("<I", len(name)) + name.encode()
            out += b"X" + struct.pack("<I", len(module)) + module.encode() + words + b"\x93"
        elif kind == 7:
            out += b"X\x0e\0\0\0touch canary_x" + rng.choice((b"\x85R", b"Q", b"\x85Q"))
        else:
            out += rng.choice(OPCODES).code.encode("latin-1")
    return bytes(out) + b"."


def _bomb(rng: random.Random) -> bytes:
    """Return few bytes that stand for much: shared references, long numbers, arrays that are only promised."""
    kind = rng.randrange(5)
    if kind == 0:
        value: Any = ["x"] * 9
        for _ in range(rng.choice((8, 30))):
            value = [value] * 9 if rng.random() < 0.5 else (value,) * 9
        return pickle.dumps({"frames": value, "success": False})
    if kind == 1:
        return b"\x80\x04\x8b" + struct.pack("<i", 2**31 - 1) + b"\x01."  # LONG4
    if kind == 2:
        return b"\x80\x04" + rng.choice((b"\x8e", b"\x8d", b"\x96")) + struct.pack("<Q", 2**40) + b"x."  # BINBYTES8 ...
    if kind == 3:
        return b"\x80\x04" + b"(" * 50_000 + b"t" * 50_000 + b"."
    return b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"N."


def _spliced(rng: random.Random, source: bytes) -> bytes:
    return mutate_bytes(rng, source, _program(rng))


def _nasty_content(rng: random.Random) -> bytes:
    frame = {"obs": {"main_images": nasty(rng), "states": nasty(rng)}, "action": nasty(rng), "success": nasty(rng)}
    content = {"frames": [frame] * rng.choice((1, 3)), "success": nasty(rng), "label": nasty(rng)}
    return pickle.dumps(rng.choice((content, nasty(rng), {"frames": nasty(rng)})), protocol=rng.choice((2, 4)))


TARGET = Target("pickles", _prepare, _draw)
