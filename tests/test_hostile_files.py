"""Files from others: what is not a file is not opened, and nothing is built that costs more than its file."""

import io
import json
import os
import pickle
import socket
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image
from safetensors.torch import save_file

from rewardlab.data.images import read_image
from rewardlab.data.reader import StoredEpisode
from rewardlab.errors import ConfigError, DataError
from rewardlab.limits import check_file_size
from rewardlab.models.weights import read_tensor_file
from rewardlab.reports.history import read_history
from rewardlab.rewards import create_reward_model, load_reward_model
from rewardlab.rewards.checkpoint import read_checkpoint
from rewardlab.rewards.classifier import ResNetRewardModel
from rewardlab.run_state import load_state


def no_file(path: Path, kind: str) -> None:
    path.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        here = Path.cwd()
        os.chdir(path.parent)  # the path of a socket has at most 107 characters
        try:
            with socket.socket(socket.AF_UNIX) as end:
                end.bind(path.name)
        finally:
            os.chdir(here)


def as_checkpoint(path: Path) -> Any:
    save_file({"a": torch.zeros(1)}, path.with_name("model.safetensors"))
    return read_checkpoint(path.parent)


def as_state(path: Path) -> Any:
    return load_state(path.parent)


READERS: dict[str, Callable[[Path], Any]] = {
    "frame.png": read_image,
    "frame.jpg": read_image,
    "weights.pt": read_tensor_file,
    "weights.safetensors": read_tensor_file,
    "episode.pkl": lambda path: StoredEpisode(path).load(),
    "episode.npy": lambda path: StoredEpisode(path).load(),
    "episode.safetensors": lambda path: StoredEpisode(path).facts,
    "identity.safetensors": lambda path: StoredEpisode(path).identity,
    "identity.npy": lambda path: StoredEpisode(path).identity,
    "config.json": as_checkpoint,
    "state/config.json": as_state,
    "metrics.jsonl": read_history,
}


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "directory"])
@pytest.mark.parametrize("name", READERS)
def test_only_files_are_opened(name: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / name
    no_file(path, kind)
    with pytest.raises(DataError, match=rf"{path.name}.* is a {kind}; expected a file|{path.name} is missing"):
        READERS[name](path)


class TestPictures:
    @pytest.mark.parametrize("kind", ["EPS", "BMP", "GIF", "TIFF", "PPM"])
    def test_only_png_and_jpeg_are_decoded(self, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def ghostscript(*_: object, **__: object) -> None:
            raise AssertionError("Ghostscript was started")

        monkeypatch.setattr(EpsImagePlugin, "Ghostscript", ghostscript)
        path = tmp_path / "frame.png"
        Image.new("RGB", (4, 4)).save(path, kind)
        with pytest.raises(DataError, match=r"frame\.png is damaged or not a picture \(expected PNG or JPEG\)"):
            read_image(path)

    @pytest.mark.parametrize("kind", ["PNG", "JPEG"])
    def test_the_content_decides_between_the_two(self, kind: str, tmp_path: Path) -> None:
        Image.new("RGB", (5, 4), (9, 9, 9)).save(tmp_path / "frame.png", kind)
        assert read_image(tmp_path / "frame.png").shape == (4, 5, 3)

    def test_a_small_file_of_many_pixels(self, tmp_path: Path) -> None:
        def chunk(kind: bytes, data: bytes) -> bytes:
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        header = chunk(b"IHDR", struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0))
        pixels = chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
        (tmp_path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + pixels)
        with pytest.raises(DataError, match=r"50000 x 50000 pixels, .*67,108,864 .*REWARDLAB_MAX_PIXELS=2500000000"):
            read_image(tmp_path / "bomb.png")

    def test_the_limit_is_a_variable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        Image.new("RGB", (10, 10)).save(tmp_path / "frame.png")
        monkeypatch.setenv("REWARDLAB_MAX_PIXELS", "99")
        with pytest.raises(DataError, match="limit of 99 pixels"):
            read_image(tmp_path / "frame.png")
        monkeypatch.setenv("REWARDLAB_MAX_PIXELS", "100")
        assert read_image(tmp_path / "frame.png").shape == (10, 10, 3)

    @pytest.mark.parametrize("value", ["many", "0", "-5", "1e9", "9" * 30])
    def test_a_bad_variable_is_an_error(self, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        Image.new("RGB", (10, 10)).save(tmp_path / "frame.png")
        monkeypatch.setenv("REWARDLAB_MAX_PIXELS", value)
        with pytest.raises(ConfigError, match=rf"REWARDLAB_MAX_PIXELS: found '{value}', expected a whole number above"):
            read_image(tmp_path / "frame.png")


class TestEpisodes:
    def test_a_bad_variable_is_not_blamed_on_the_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a.pkl").write_bytes(pickle.dumps({"frames": []}))
        monkeypatch.setenv("REWARDLAB_MAX_FILE_BYTES", "lots")
        with pytest.raises(ConfigError, match="REWARDLAB_MAX_FILE_BYTES: found 'lots'"):
            StoredEpisode(tmp_path / "a.pkl").load()

    def test_a_file_larger_than_the_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(DataError, match=r"a\.npy: a file of .* GB, more than the limit .*MAX_FILE_BYTES=10995"):
            check_file_size(2**40 * 10**3, "a.npy")
        monkeypatch.setenv("REWARDLAB_MAX_FILE_BYTES", str(2**40 * 10**3))
        check_file_size(2**40 * 10**3, "a.npy")

    def test_a_header_that_is_longer_than_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")
        with pytest.raises(DataError, match="header is cut short"):
            _ = StoredEpisode(tmp_path / "a.safetensors").identity

    def test_an_array_that_only_its_header_has(self, tmp_path: Path) -> None:
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**6,) * 3}
        file = io.BytesIO()
        np.lib.format.write_array_header_1_0(file, header)
        (tmp_path / "a.npy").write_bytes(file.getvalue())
        with pytest.raises(DataError, match="expected a dictionary"):
            StoredEpisode(tmp_path / "a.npy").load()


def torch_archive(path: Path, content: bytes, compression: int = zipfile.ZIP_STORED, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in {"data.pkl": content, **members}.items():
            archive.writestr(f"archive/{name}", data)
    return path


def nested_tuples(depth: int) -> Any:
    value: Any = ()
    for _ in range(depth):
        value = (value, value)
    return value


class TestTorchFiles:
    @pytest.mark.parametrize("older", [False, True])
    def test_what_training_scripts_save(self, older: bool, tmp_path: Path) -> None:
        network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
        optimizer = torch.optim.Adam(network.parameters())
        network(torch.ones(4, 3)).sum().backward()
        optimizer.step()
        content = {
            "model_state_dict": network.state_dict(),
            "optimizer": optimizer.state_dict(),
            "epoch": 3,
            "score": np.float64(0.5),
            "shape": torch.Size([1, 2]),
            "device": torch.device("cpu"),
        }
        torch.save(content, tmp_path / "m.pt", _use_new_zipfile_serialization=not older)
        weights, facts = read_tensor_file(tmp_path / "m.pt")
        assert {name: tensor.dtype for name, tensor in weights.items()} == {
            name: tensor.dtype for name, tensor in network.state_dict().items()
        }
        assert all(torch.equal(weights[name], tensor) for name, tensor in network.state_dict().items())
        assert (facts["epoch"], facts["score"], facts["shape"], facts["device"]) == (3, 0.5, (1, 2), "cpu")

    @pytest.mark.parametrize("older", [False, True])
    def test_views_parameters_and_half_precision(self, older: bool, tmp_path: Path) -> None:
        whole = torch.arange(12.0).reshape(3, 4)
        content = {"t": whole.T, "part": whole[1:, 2:], "p": torch.nn.Parameter(whole), "half": whole.bfloat16() + 0.5}
        torch.save(content | {"empty": torch.empty(0, 3)}, tmp_path / "m.pt", _use_new_zipfile_serialization=not older)
        weights, _ = read_tensor_file(tmp_path / "m.pt")
        assert all(torch.equal(weights[name], tensor.float()) for name, tensor in content.items())
        assert weights["empty"].shape == (0, 3)

    def test_a_compressed_one_is_limited(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = torch_archive(tmp_path / "m.pt", pickle.dumps({}), zipfile.ZIP_DEFLATED, **{"data/0": bytes(2**20)})
        monkeypatch.setenv("REWARDLAB_MAX_FILE_BYTES", "1000000")
        with pytest.raises(DataError, match=r"m\.pt: its contents take 1\.0 MB .*REWARDLAB_MAX_FILE_BYTES"):
            read_tensor_file(path)

    def test_the_usual_limit_on_a_compressed_one(self, tmp_path: Path) -> None:
        path = torch_archive(tmp_path / "m.pt", pickle.dumps({}), **{"data/0": b"0123"})
        claims = path.read_bytes().replace(struct.pack("<II", 4, 4), struct.pack("<II", 4, 2**31))
        path.write_bytes(claims)
        with pytest.raises(DataError, match=r"2\.1 GB in memory, more than the limit of 268\.4 MB"):
            read_tensor_file(path)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (pickle.dumps({(1, 2): 3}), "a tuple as a key"),  # hashing nested ones takes for ever, or the process
            (pickle.dumps({"a": nested_tuples(60)}), "REWARDLAB_MAX_FILE_BYTES"),
            (b"\x80\x02}\x8c\x01a(\x8c\x07storagectorch\nFloatStorage\n\x8c\x010NJ\xff\xff\xff\x7ftQs.", "cut short"),
            (b"\x80\x02}\x8c\x01acbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85Rs.", "without bytes"),
        ],
    )
    def test_its_pickle_is_plain_data_of_its_size(self, content: bytes, message: str, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=message):
            read_tensor_file(torch_archive(tmp_path / "m.pt", content, **{"data/0": bytes(16)}))


class TestCheckpoints:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return ResNetRewardModel(arch="resnet10", width=8, hidden_dim=8, image_size=(3, 32, 32)).save(tmp_path / "m")

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("width", 2**16, "its config describes a network of more than"),
            ("hidden_dim", 2**40, "its config describes a network of more than"),
            ("image_keys", [f"camera_{n}" for n in range(2**19)], "its config describes a network of more than"),
            ("image_size", [3, 10**6, 10**6], "REWARDLAB_MAX_PIXELS"),
            ("image_size", 32, "image_size|cannot be built"),
        ],
    )
    def test_sizes_are_compared_with_the_weights_before_anything_is_built(
        self, path: Path, key: str, value: object, message: str
    ) -> None:
        config = json.loads((path / "config.json").read_text())
        config["architecture"][key] = value
        (path / "config.json").write_text(json.dumps(config))
        with pytest.raises(DataError, match=message):
            load_reward_model(path)

    @pytest.mark.parametrize(
        ("model_type", "key", "value"),
        [
            ("pdeil", "obs_shape", 10**5),
            ("pdeil", "action_shape", 10**9),
            ("rnd", "obs_shape", [10**5, 10**5, 3]),
            ("rnd", "hidden_size_list", [1] * 100_000),
        ],
    )
    def test_of_models_over_transitions_too(self, model_type: str, key: str, value: object, tmp_path: Path) -> None:
        expert = {"observation": np.random.default_rng(0).normal(size=(20, 4)), "action": np.arange(20) % 2}
        (tmp_path / "expert.pkl").write_bytes(pickle.dumps(expert))
        settings = {"expert_data_path": str(tmp_path / "expert.pkl")} if model_type == "pdeil" else {}
        model: Any = create_reward_model({"model_type": model_type, "obs_shape": 4, "action_shape": 2, **settings})
        path = model.save(tmp_path / "m")
        assert load_reward_model(path).model_type == model_type
        config = json.loads((path / "config.json").read_text())
        config["architecture"][key] = value
        (path / "config.json").write_text(json.dumps(config))
        with pytest.raises(DataError, match="its config describes a network of more than"):
            load_reward_model(path)
