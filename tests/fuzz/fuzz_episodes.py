"""Episodes in every format, damaged: bytes anywhere, and the headers and facts that describe the arrays."""

import copy
import json
import random
import struct
from pathlib import Path

import numpy as np
from fuzzing import Case, Target, mutate_bytes, mutate_tree, nasty
from valid_files import write_classifier, write_episodes

FORMATS = ("safetensors", "pickle", "npy")


def _prepare(valid: Path) -> None:
    for format in FORMATS:
        write_episodes(valid / format, format)
    write_classifier(valid / "model")


def _draw(rng: random.Random, valid: Path, work: Path) -> Case:
    files = sorted(path for path in (valid / rng.choice(FORMATS)).rglob("*") if path.is_file())
    source, other = rng.choice(files), rng.choice(files)
    content = source.read_bytes()
    if source.suffix == ".safetensors" and rng.random() < 0.6:
        content = _mutated_header(rng, content)
    elif source.suffix == ".npy" and rng.random() < 0.4:
        content = _other_array(rng)
    else:
        content = mutate_bytes(rng, content, other.read_bytes())
    name = source.name if rng.random() < 0.9 else f"\x1b[31m[red]{source.name}"
    place = work / "episodes" / source.parent.name
    place.mkdir(parents=True)
    (place / name).write_bytes(content)
    commands = {
        "info": ["data", "info", "episodes"],
        "verify": ["data", "verify", "episodes"],
        "show": ["data", "show", "episodes", "--out", "sheet.png"],
        "convert": ["data", "convert", "episodes", "out", "--format", rng.choice(FORMATS)],
        "score": ["score", str(valid / "model"), "episodes"],
    }
    return Case(commands[rng.choice(list(commands))])


def _mutated_header(rng: random.Random, content: bytes) -> bytes:
    """Change the JSON at the beginning of a .safetensors: names, shapes, offsets, and the facts of the episode."""
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    metadata = header.get("__metadata__", {})
    for key in list(metadata) if rng.random() < 0.6 else ():
        try:
            facts = json.loads(metadata[key])
        except ValueError:
            metadata[key] = str(nasty(rng))
            continue
        metadata[key] = json.dumps(mutate_tree(rng, facts) if isinstance(facts, dict) else nasty(rng))
    if rng.random() < 0.5:
        header = mutate_tree(rng, copy.deepcopy(header))
    text = json.dumps(header).encode()
    length = len(text) if rng.random() < 0.9 else rng.choice((0, 1, 2**31, 2**63 - 1))
    return struct.pack("<Q", length) + text + content[8 + size :]


def _other_array(rng: random.Random) -> bytes:
    """Return a .npy file of another array, or with a header that promises one."""
    import io

    shape = rng.choice(("()", "(0,)", "(4,)", "(4, 3)", "(4, 16, 16, 3)", "(100000000000,)", "(-1, 3)", "(2, 0, 9)"))
    dtype = rng.choice(("<f4", "|u1", "<f8", "|O", "<U9", "|b1", ">i8", "|V8", "[('a', '<f4')]"))
    if rng.random() < 0.5:
        buffer = io.BytesIO()
        try:
            array = np.zeros(eval(shape) if "1000000" not in shape and "-1" not in shape else 3, np.dtype(eval(dtype)))
        except (SyntaxError, NameError):
            array = np.zeros(3, np.dtype(dtype))
        np.save(buffer, {"images": array, "labels": array} if rng.random() < 0.5 else array, allow_pickle=True)  # type: ignore[arg-type]
        return buffer.getvalue()
    text = f"{{'descr': '{dtype}', 'fortran_order': {rng.choice(('True', 'False', 'x'))}, 'shape': {shape}, }}"
    header = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + b"\0" * rng.choice((0, 100, 5000))


TARGET = Target("episodes", _prepare, _draw)
