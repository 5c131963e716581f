"""Pickles that try to call, to change the running process, or to cost more than their size."""

import collections
import io
import pickle
import struct
import tracemalloc

import numpy as np
import pytest

from rewardlab import unpickle
from rewardlab.data import read_episodes
from rewardlab.errors import DataError

torch = pytest.importorskip("torch")

MB = 2**20


def load(data: bytes):
    return unpickle.load(io.BytesIO(data), "test.pkl")


def torch_storage(content: bytes) -> bytes:
    """The instructions that load a nested torch storage whose content is this pickle."""
    header = b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
    data = header + content + pickle.dumps([], 2)
    return b"ctorch.storage\n_load_from_bytes\n" + b"B" + struct.pack("<I", len(data)) + data + b"\x85R"


COUNTER = b"\x80\x02ccollections\nCounter\n."  # allowed by torch's own restricted loader
SET_ATTRIBUTE = b"N}(\x8c\x08attackedK\x01u\x86b"  # BUILD with the slots {"attacked": 1}
ALLOWED = b"cnumpy\ndtype\n"


@pytest.mark.parametrize(
    "program",
    [
        torch_storage(COUNTER) + SET_ATTRIBUTE,
        torch_storage(COUNTER) + b")R",
        torch_storage(COUNTER),
        torch_storage(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n.") + SET_ATTRIBUTE,
        torch_storage(b"\x80\x02}."),
        torch_storage(b"\x80\x02" + torch_storage(COUNTER) + b"."),
        ALLOWED + SET_ATTRIBUTE,
        ALLOWED + b"}(\x8c\x08attackedK\x01ub",
        ALLOWED + b")\x81",  # NEWOBJ
        ALLOWED + b")}\x92",  # NEWOBJ_EX
        b"(" + ALLOWED + b"o",  # OBJ
        b"(inumpy\ndtype\n",  # INST
        b"\x82\x01",  # EXT1
        b"K\x01Q",  # BINPERSID
        b"Pname\n",  # PERSID
        b"\x97",  # NEXT_BUFFER
        b"cnumpy\nndarray\n)R",
        ALLOWED,  # a function as the result
        b"]" + ALLOWED + b"a",  # and inside of it
        b"cnumpy._core.multiarray\n_reconstruct\n)RK\x00K\x01s",  # SETITEM on an array
        b"cnumpy._core.multiarray\n_reconstruct\n)RK\x01a",  # APPEND to it
        b"\x8fK\x01a",  # APPEND to a set
        b"]" + SET_ATTRIBUTE,
        b"]}(\x8c\x08attackedK\x01ub",
        b"\x8c\x04text" + SET_ATTRIBUTE,
    ],
)
def test_nothing_can_be_called_or_changed(program):
    before = {name: vars(unpickle)[name] for name in ("_ALLOWED", "Function", "PlainUnpickler")}
    allowed = dict(unpickle._ALLOWED)
    with pytest.raises(DataError, match=r"test\.pkl (was refused|is damaged)"):
        load(b"\x80\x04" + program + b".")
    assert not hasattr(collections.Counter, "attacked")
    assert all(vars(unpickle)[name] is value for name, value in before.items())
    assert allowed == unpickle._ALLOWED
    assert not any("attacked" in vars(entry) for entry in allowed.values() if hasattr(entry, "__dict__"))


def test_attributes_of_a_dictionary_are_dropped():
    found = load(b"\x80\x04ccollections\nOrderedDict\n)R}(\x8c\x05itemsK\x01ub.")  # as in the weights of a module
    assert found == {}
    assert list(found.items()) == []


def shared(depth: int, make):
    value = make([])
    for _ in range(depth):
        value = make([value, value])
    return value


def containing_itself():
    value: list[object] = []
    value.append(value)
    return value


def deep(depth: int):
    return b"]" * depth + b"a" * (depth - 1)


def array(shape: bytes, data: bytes = b"") -> bytes:
    dtype = b"cnumpy\ndtype\n(S'u1'\nI0\nI1\ntR"
    state = b"(I1\n" + shape + dtype + b"I00\nB" + struct.pack("<I", len(data)) + data + b"tb"
    return b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR" + state


def copies(count: int) -> bytes:
    """One megabyte, and arrays that are copies of it."""
    once = b"B" + struct.pack("<I", MB) + bytes(MB) + b"q\x000"
    dtype = b"cnumpy\ndtype\n(S'u1'\nI0\nI1\ntRq\x010"
    copy = b"cnumpy._core.numeric\n_frombuffer\n(h\x00h\x01(I1048576\ntS'C'\ntR"
    return b"\x80\x04" + once + dtype + b"(" + copy * count + b"l."


def colliding_key(number: int) -> bytes:
    """An integer with the hash 0 as a key, and None as its value. Not a dictionary: making one takes minutes."""
    return b"\x8a\x0a" + (number * (2**61 - 1)).to_bytes(10, "little") + b"N"


def repeated_tensor(rows: int) -> bytes:
    return pickle.dumps(torch.zeros(1).expand(rows))


BOMBS = {
    "lists of lists": pickle.dumps(shared(60, list)),
    "tuples of tuples": pickle.dumps(shared(60, tuple)),
    "many references to one frame": pickle.dumps([np.zeros((64, 64, 3), np.uint8)] * 100_000),
    "a list in itself": pickle.dumps(containing_itself()),
    "a deep list": b"\x80\x04" + deep(20_000) + b".",
    "copies of an array": copies(1000),
    "a long shape": b"\x80\x04" + array(b"(" + b"L4611686018427387904L\n" * 20_000 + b"t") + b".",
    "a shape of large numbers": b"\x80\x04" + array(b"(" + b"L4611686018427387904L\n" * 30 + b"t") + b".",
    "an empty array with a long axis": b"\x80\x04" + array(b"(L4611686018427387904L\nI0\nt") + b".",
    "a shape of bombs": b"\x80\x04" + array(pickle.dumps(shared(60, tuple), 0)[:-1]) + b".",
    "integers of one hash": b"\x80\x04}(" + b"".join(map(colliding_key, range(1, 50_000))) + b"u.",
    "a repeated tensor": repeated_tensor(10**12),
    "a name without end": b"\x80\x04c" + b"m" * MB + b"\nname\n.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_pickle_costs_no_more_than_its_size(name):
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as caught:
            load(BOMBS[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 600
    assert peak < 2**28 + 20 * len(BOMBS[name])


def test_the_limit_is_said_and_can_be_raised(monkeypatch):
    frames = pickle.dumps([np.zeros(MB, np.uint8)] * 400)
    with pytest.raises(DataError, match=r"419\.5 MB .*limit of 268\.4 MB .*variable REWARDLAB_MAX_FILE_BYTES"):
        load(frames)
    monkeypatch.setenv("REWARDLAB_MAX_FILE_BYTES", "1000000000")
    assert len(load(frames)) == 400


def test_moderate_sharing_is_fine():
    state = np.zeros(7, np.float32)
    assert len(load(pickle.dumps([{"states": state}] * 1000))) == 1000
    assert load(repeated_tensor(1000)).shape == (1000,)
    assert load(pickle.dumps(torch.ones(2, 3)[:, 1:2].expand(2, 3))).tolist() == [[1, 1, 1], [1, 1, 1]]


def test_an_episode_that_attacks_is_named_and_the_others_are_read(tmp_path):
    frame = {"obs": {"main_images": np.zeros((4, 4, 3), np.uint8)}, "success": True}
    episode = {"frames": [frame], "success": True, "label": 1}
    evil = b"\x80\x04" + torch_storage(COUNTER) + SET_ATTRIBUTE + b"0" + pickle.dumps(episode, 2)[2:]
    folder = tmp_path / "success"
    folder.mkdir()
    (folder / "episode_000000.pkl").write_bytes(evil)
    (folder / "episode_000001.pkl").write_bytes(pickle.dumps(episode))
    first, second = read_episodes(tmp_path)
    with pytest.raises(DataError, match=r"episode_000000\.pkl was refused"):
        first.load()
    assert second.load().facts.success
    assert not hasattr(collections.Counter, "attacked")
