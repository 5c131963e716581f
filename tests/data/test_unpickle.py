"""Nothing that a file says is ever run."""

import builtins
import io
import os
import pickle
import subprocess

import numpy as np
import pytest

from rewardlab import unpickle
from rewardlab.data import EpisodeWriter, read_episodes, verify
from rewardlab.errors import DataError


class Call:
    """Pickles as a call of `function(*args)`."""

    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args


def load(data: bytes):
    return unpickle.load(io.BytesIO(data), "test.pkl")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_of_every_protocol(protocol):
    data = {
        "array": np.arange(6, dtype=np.float32).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "big-endian": np.arange(3, dtype=">i2"),
        "bool": np.array([True, False]),
        "objects": np.array([{"a": 1}, None], dtype=object),
        "scalar": np.float32(0.5),
        "bytes": b"\x00\xff",
        "bytearray": bytearray(b"\x00\xff"),
        "set": {1, 2},
        "plain": [1, 2.5, "text", None, True, (1, 2)],
    }
    loaded = load(pickle.dumps(data, protocol=protocol))
    for key, value in data.items():
        np.testing.assert_equal(np.asarray(loaded[key]) if isinstance(value, np.ndarray) else loaded[key], value)


def test_arrays_of_numpy_1():
    data = pickle.dumps([np.arange(3), np.float64(2)], protocol=2)
    old = data.replace(b"numpy._core.", b"numpy.core.")
    assert old != data
    array, scalar = load(old)
    assert (array.tolist(), scalar) == ([0, 1, 2], 2.0)


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    tensors = [torch.arange(6).reshape(2, 3).T, torch.ones(2, dtype=torch.bfloat16), torch.tensor(True)]
    loaded = load(pickle.dumps(tensors))
    for tensor, array in zip(tensors, loaded, strict=True):
        np.testing.assert_array_equal(array, tensor.float().numpy())


def evil_calls(marker):
    command = f"touch {marker}"
    yield "os.system", Call(os.system, command)
    yield "subprocess", Call(subprocess.getoutput, command)
    yield "eval", Call(builtins.eval, f"open({str(marker)!r}, 'w')")
    yield "getattr", Call(getattr, "text", "upper")
    yield "open", Call(builtins.open, str(marker), "w")
    yield "in an array", np.array([Call(os.system, command)], dtype=object)
    yield "numpy's own pickle", Call(np.load, str(marker))


CASES = [name for name, _ in evil_calls("")]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("suffix", [".pkl", ".npy"])
def test_a_file_that_would_run_code_is_refused_and_nothing_is_run(tmp_path, make_episode, case, suffix):
    marker = tmp_path / "marker"
    evil = dict(evil_calls(marker))[case]
    folder = tmp_path / "data" / "success"
    folder.mkdir(parents=True)
    path = folder / f"episode_000000{suffix}"
    if suffix == ".pkl":
        path.write_bytes(pickle.dumps({"frames": [{"obs": evil}], "success": True, "label": 1}))
    else:
        np.save(path, {"images": {"base_camera": evil}, "labels": np.zeros(1)}, allow_pickle=True)
    with pytest.raises(DataError, match=r"refused: loading it would use '.*nothing in the file was run"):
        read_episodes(path)[0].load()
    EpisodeWriter(tmp_path / "data").write(make_episode())
    assert [problem.path for problem in verify(tmp_path / "data")] == [path]
    assert not marker.exists()


def test_torch_storages_are_not_unpickled_without_limits(tmp_path):
    torch = pytest.importorskip("torch")
    marker = tmp_path / "marker"
    inner = io.BytesIO()
    torch.save(Call(os.system, f"touch {marker}"), inner)
    with pytest.raises(DataError):
        load(pickle.dumps(Call(torch.storage._load_from_bytes, inner.getvalue())))
    assert not marker.exists()


@pytest.mark.parametrize(
    "data",
    [
        # dtype with fields, one of them an object pointer taken from the bytes
        b"cnumpy\ndtype\n(S'V8'\nI0\nI1\ntR.",
        # more elements than bytes
        b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
        b"(I1\n(I1000000\ntcnumpy\ndtype\n(S'f4'\nI0\nI1\ntRI00\nB\x04\x00\x00\x00abcdtb.",
        # an object array whose list is too short
        b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
        b"(I1\n(I9\ntcnumpy\ndtype\n(S'O8'\nI0\nI1\ntRI00\n(lNatb.",
        # attributes set on an allowed function
        b"cnumpy\ndtype\n}(S'_call'\nNub.",
        # something outside the file
        b"Pname\n.",
    ],
)
def test_crafted_arrays_are_refused(data):
    with pytest.raises(DataError):
        load(data)
    assert load(pickle.dumps(np.arange(3))).tolist() == [0, 1, 2]  # and the reader is unharmed


@pytest.mark.parametrize(
    "content",
    [
        b"}" + b")" + b"\x85" * 200_000 + b"Ns.",  # a key of 200,000 tuples, one in the other: hashing it would crash
        b"\x80\x04(" + b")" + b"\x85" * 200_000 + b"\x91.",  # the same in a frozenset
        b"\x80\x05\x96" + (3_000_000_000).to_bytes(8, "little") + b".",  # a bytearray of 3 GB in 12 bytes
    ],
)
def test_a_small_file_cannot_take_the_process_or_its_memory(content):
    with pytest.raises(DataError):
        unpickle.load(io.BytesIO(content), "hostile.pkl")
