"""Pretrained ResNets of other tools: the features are those of the tool that trained them, or the file is refused."""

import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from rewardlab.errors import ConfigError, DataError
from rewardlab.models.resnet import ResNet
from rewardlab.rewards import BinaryRewardClassifier, create_reward_model, load_success_classifier
from rewardlab.rewards.pretrained_encoder import read_pretrained_encoder

WIDTH = 8
Tree = dict[str, Any]


def jax_parameters(seed: int = 0) -> Tree:
    """A ResNet-10 of SERL with random numbers, in Flax's names and layout: kernels are [height, width, in, out]."""
    rng = np.random.default_rng(seed)

    def conv(size: int, inputs: int, outputs: int) -> Tree:
        scale = (size * size * inputs) ** -0.5
        return {"kernel": rng.normal(0, scale, (size, size, inputs, outputs)).astype(np.float32)}

    def norm(channels: int) -> Tree:
        return {
            "scale": rng.uniform(0.5, 1.5, channels).astype(np.float32),
            "bias": rng.normal(0, 0.3, channels).astype(np.float32),
        }

    tree: Tree = {"conv_init": conv(7, 3, WIDTH), "norm_init": norm(WIDTH)}
    for stage in range(4):
        outputs = WIDTH * 2**stage
        inputs = outputs if stage == 0 else outputs // 2
        block = {"Conv_0": conv(3, inputs, outputs), "MyGroupNorm_0": norm(outputs)}
        block |= {"Conv_1": conv(3, outputs, outputs), "MyGroupNorm_1": norm(outputs)}
        if stage > 0:
            block |= {"conv_proj": conv(1, inputs, outputs), "norm_proj": norm(outputs)}
        tree[f"ResNetBlock_{stage}"] = block
    return tree


def same(size: int, window: int, stride: int) -> tuple[int, int]:
    """XLA's padding "SAME": the surplus pixel goes behind."""
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


def jax_forward(tree: Tree, pixels: Tensor) -> Tensor:
    """SERL's resnet_v1.py with Flax's conventions, written with torch's functions; pixels [B, 3, H, W]."""

    def padded(x: Tensor, window: int, stride: int, value: float) -> Tensor:
        height, width = x.shape[2:]
        return functional.pad(x, (*same(width, window, stride), *same(height, window, stride)), value=value)

    def conv(x: Tensor, layer: Tree, stride: int = 1) -> Tensor:
        kernel = torch.from_numpy(layer["kernel"]).permute(3, 2, 0, 1)
        return functional.conv2d(padded(x, kernel.shape[-1], stride, 0.0), kernel, stride=stride)

    def norm(x: Tensor, layer: Tree) -> Tensor:
        groups = x.unflatten(1, (4, -1))
        mean = groups.mean(dim=(2, 3, 4), keepdim=True)
        variance = groups.var(dim=(2, 3, 4), keepdim=True, unbiased=False)
        normed = ((groups - mean) / (variance + 1e-5).sqrt()).flatten(1, 2)
        scale, bias = (torch.from_numpy(layer[key]).view(-1, 1, 1) for key in ("scale", "bias"))
        return normed * scale + bias

    kernel = torch.from_numpy(tree["conv_init"]["kernel"]).permute(3, 2, 0, 1)
    x = functional.conv2d(functional.pad(pixels, (3, 3, 3, 3)), kernel, stride=2)
    x = functional.max_pool2d(padded(norm(x, tree["norm_init"]).relu(), 3, 2, -torch.inf), 3, stride=2)
    for stage in range(4):
        block, stride = tree[f"ResNetBlock_{stage}"], 1 if stage == 0 else 2
        y = norm(conv(x, block["Conv_0"], stride), block["MyGroupNorm_0"]).relu()
        y = norm(conv(y, block["Conv_1"]), block["MyGroupNorm_1"])
        if "conv_proj" in block:
            x = norm(conv(x, block["conv_proj"], stride), block["norm_proj"])
        x = (x + y).relu()
    return x


def lerobot_weights(tree: Tree, wrapped: bool = True) -> dict[str, Tensor]:
    """The same network as LeRobot has it, converted to torch; older versions did not wrap each layer."""
    conv, norm = (".conv", ".group_norm") if wrapped else ("", "")
    weights: dict[str, Tensor] = {}

    def add(name: str, layer: Tree) -> None:
        if "kernel" in layer:
            weights[f"{name}.weight"] = torch.from_numpy(layer["kernel"]).permute(3, 2, 0, 1).contiguous()
        else:
            weights[f"{name}.weight"], weights[f"{name}.bias"] = map(torch.from_numpy, (layer["scale"], layer["bias"]))

    add("embedder.0", tree["conv_init"])
    add(f"embedder.1{norm}", tree["norm_init"])
    for stage in range(4):
        place, block = f"encoder.stages.{stage}", tree[f"ResNetBlock_{stage}"]
        for number in (0, 1):
            add(f"{place}.conv{number + 1}{conv}", block[f"Conv_{number}"])
            add(f"{place}.norm{number + 1}{norm}", block[f"MyGroupNorm_{number}"])
        if "conv_proj" in block:
            add(f"{place}.shortcut.0{conv}", block["conv_proj"])
            add(f"{place}.shortcut.1{norm}", block["norm_proj"])
    return weights


class JaxArray:
    """Pickles itself as JAX's arrays do."""

    def __init__(self, value: np.ndarray[Any, Any], rebuild: Callable[..., Any]) -> None:
        self.value, self.rebuild = value, rebuild

    def __reduce__(self) -> Any:
        function, arguments, state = self.value.__reduce__()[:3]  # type: ignore[misc]
        return self.rebuild, (function, arguments, state, {"weak_type": False, "named_shape": {}})


def pickled_by_jax(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> bytes:
    module: Any = ModuleType("jax._src.array")

    def _reconstruct_array() -> None: ...

    _reconstruct_array.__module__, _reconstruct_array.__qualname__ = module.__name__, "_reconstruct_array"
    module._reconstruct_array = _reconstruct_array

    def convert(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: convert(value) for key, value in part.items()}
        return JaxArray(part, _reconstruct_array)

    with monkeypatch.context() as context:
        for name in ("jax", "jax._src", "jax._src.array"):
            context.setitem(sys.modules, name, module)
        return pickle.dumps(convert(tree))


def features(path: Path, pixels: Tensor) -> Tensor:
    weights, norm, padding = read_pretrained_encoder(path)
    encoder = ResNet("resnet10", width=WIDTH, norm=norm, padding=padding)
    encoder.load_state_dict(weights)
    with torch.no_grad():
        return encoder.eval()(pixels)


@pytest.fixture
def tree() -> Tree:
    return jax_parameters()


@pytest.mark.parametrize("size", [(64, 64), (128, 128), (45, 70)])
@pytest.mark.parametrize("kind", ["numpy.pkl", "jax.pkl", "nested.pkl", "model.safetensors", "older.safetensors"])
def test_the_features_of_serl_come_out(
    kind: str, size: tuple[int, int], tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / kind
    head = {"output_head": {"kernel": np.zeros((64, 1000), np.float32), "bias": np.zeros(1000, np.float32)}}
    if kind == "numpy.pkl":
        path.write_bytes(pickle.dumps({**tree, **head}))
    elif kind == "jax.pkl":
        path.write_bytes(pickled_by_jax({**tree, **head}, monkeypatch))
    elif kind == "nested.pkl":
        path.write_bytes(pickle.dumps({"params": {"pretrained_encoder": tree}, "step": 3}))
    else:
        save_file(lerobot_weights(tree, wrapped=kind == "model.safetensors"), path)
    pixels = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))
    expected = jax_forward(tree, pixels)
    assert expected.std() > 0.1
    torch.testing.assert_close(features(path, pixels), expected, rtol=1e-4, atol=1e-4)


def test_padding_on_both_sides_would_give_other_features(tree: Tree, tmp_path: Path) -> None:
    """What happens if the weights are loaded into a network that pads as torch does."""
    save_file(lerobot_weights(tree), tmp_path / "model.safetensors")
    encoder = ResNet("resnet10", width=WIDTH, norm="group")
    encoder.load_state_dict(read_pretrained_encoder(tmp_path / "model.safetensors").weights)
    pixels = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert (encoder(pixels) - jax_forward(tree, pixels)).abs().mean() > 0.05


def transformers_names(encoder: ResNet) -> dict[str, Tensor]:
    """The weights of a ResNet under the names of Hugging Face's ResNetForImageClassification."""
    weights = {"classifier.1.weight": torch.zeros(4, encoder.channels), "classifier.1.bias": torch.zeros(4)}
    for name, value in encoder.state_dict().items():
        parts = name.split(".")
        kinds = {"conv": "convolution", "bn": "normalization", "0": "convolution", "1": "normalization"}
        if parts[0] in ("conv1", "bn1"):
            place = f"embedder.embedder.{kinds[parts[0][:-1]]}"
        else:
            place = f"encoder.stages.{int(parts[0][5:]) - 1}.layers.{parts[1]}"
            if parts[2] == "downsample":
                place += f".shortcut.{kinds[parts[3]]}"
            else:
                place += f".layer.{int(parts[2][-1]) - 1}.{kinds[parts[2][:-1]]}"
        weights[f"resnet.{place}.{parts[-1]}"] = value.clone()
    return weights


@pytest.mark.parametrize("arch", ["resnet18", "resnet50"])
def test_the_resnet_of_transformers_is_torchvisions_under_other_names(arch: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = ResNet(arch, width=WIDTH).eval()
    save_file(transformers_names(encoder), tmp_path / "model.safetensors")
    weights, norm, padding = read_pretrained_encoder(tmp_path)  # the directory that Hugging Face's tools download
    assert (norm, padding) == ("batch", "symmetric")
    assert weights.keys() == encoder.state_dict().keys()
    assert all(torch.equal(weights[name], value) for name, value in encoder.state_dict().items())
    (tmp_path / "config.json").write_text(json.dumps({"downsample_in_bottleneck": True}))
    with pytest.raises(DataError, match=r"config\.json: downsample_in_bottleneck is True; only .* False"):
        read_pretrained_encoder(tmp_path / "model.safetensors")


def test_a_classifier_is_built_trained_and_stored_with_it(tree: Tree, tmp_path: Path) -> None:
    path = tmp_path / "resnet10_params.pkl"
    path.write_bytes(pickle.dumps(tree))
    settings = {"pretrained_encoder_path": str(path), "width": WIDTH, "hidden_dim": 8, "num_spatial_blocks": 2}
    model = create_reward_model({"type": "binary_classifier", **settings})
    assert isinstance(model, BinaryRewardClassifier)
    assert (model.norm, model.padding, model.network.frozen) == ("group", "same", True)
    frames = torch.randint(0, 256, (3, 64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    pixels = model.network.preprocess(frames)
    with torch.no_grad():
        logits = model.network.head(jax_forward(tree, pixels.flatten(0, 1)).unflatten(0, (3, 1)))
    torch.testing.assert_close(model.logits(frames), logits, rtol=1e-4, atol=1e-4)
    onnx = load_success_classifier(model.save(tmp_path / "model"), backend="onnx")
    torch.testing.assert_close(onnx.logits(frames), logits, rtol=1e-4, atol=1e-4)
    assert torch.equal(model.logits(frames[:1]), model.logits(frames)[:1])
    loaded = load_success_classifier(tmp_path / "model")
    assert torch.equal(loaded.logits(frames), model.logits(frames))


class TestRefused:
    def test_a_part_that_is_missing_or_unknown(self, tree: Tree, tmp_path: Path) -> None:
        path = tmp_path / "model.safetensors"
        weights = lerobot_weights(tree)
        save_file({name: value for name, value in weights.items() if "stages.2.shortcut.1" not in name}, path)
        model = BinaryRewardClassifier(pretrained_encoder_path=str(path), width=WIDTH)
        with pytest.raises(DataError, match=r"layer3\.0\.downsample\.1\.weight is missing"):
            model.load_pretrained_encoder()
        save_file({**weights, "encoder.stages.0.attention.weight": torch.zeros(2)}, path)
        with pytest.raises(DataError, match=r"'encoder\.stages\.0\.attention\.weight' is not a part of a ResNet"):
            model.load_pretrained_encoder()

    def test_another_width(self, tree: Tree, tmp_path: Path) -> None:
        path = tmp_path / "params.pkl"
        path.write_bytes(pickle.dumps(tree))
        model = BinaryRewardClassifier(pretrained_encoder_path=str(path), width=4)
        with pytest.raises(DataError, match=r"conv1\.weight is \[8, 3, 7, 7\], expected \[4, 3, 7, 7\]"):
            model.load_pretrained_encoder()

    def test_layers_that_the_network_does_not_have(self, tree: Tree, tmp_path: Path) -> None:
        path = tmp_path / "params.pkl"
        tree["ResNetBlock_1"]["LayerNorm_0"] = tree["ResNetBlock_1"].pop("MyGroupNorm_0")
        path.write_bytes(pickle.dumps(tree))
        with pytest.raises(DataError, match=r"'layer2\.0\.LayerNorm_0\.(weight|bias)' is not a part of a ResNet"):
            read_pretrained_encoder(path)
        del tree["ResNetBlock_3"]
        path.write_bytes(pickle.dumps(tree))
        with pytest.raises(DataError, match="no known ResNet has 3 such blocks"):
            read_pretrained_encoder(path)

    def test_pickles_that_are_no_parameters(self, tmp_path: Path) -> None:
        path = tmp_path / "params.pkl"
        path.write_bytes(pickle.dumps({"episodes": np.zeros(3)}))
        with pytest.raises(DataError, match=r"expected the parameters of one ResNet.*found episodes"):
            read_pretrained_encoder(path)
        path.write_bytes(pickle.dumps(eval))
        with pytest.raises(DataError, match=r"refused.*builtins\.eval"):
            read_pretrained_encoder(path)
        with pytest.raises(DataError, match="no such file"):
            read_pretrained_encoder(tmp_path / "none.pkl")

    def test_arrays_of_jax_may_call_nothing_else(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "params.pkl"
        monkeypatch.setattr(JaxArray, "__reduce__", lambda self: (self.rebuild, (np.dtype, ("f4",), (), {})))
        path.write_bytes(pickled_by_jax({"a": np.zeros(3, np.float32)}, monkeypatch))
        with pytest.raises(DataError, match=r"refused.*an array of JAX that is no array of NumPy"):
            read_pretrained_encoder(path)

    def test_hugging_faces_names_without_statistics(self, tmp_path: Path) -> None:
        weights = transformers_names(ResNet("resnet10", width=WIDTH))
        kept = {name: value for name, value in weights.items() if "running" not in name}
        save_file(kept, tmp_path / "model.safetensors")
        with pytest.raises(DataError, match="no running statistics"):
            read_pretrained_encoder(tmp_path)

    def test_an_unknown_padding(self) -> None:
        with pytest.raises(ConfigError, match=r"padding.*smae.*same"):
            ResNet("resnet10", padding="smae")  # type: ignore[arg-type]
