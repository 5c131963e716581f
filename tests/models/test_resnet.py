"""ResNets have torchvision's parameters, and take the weights that others trained."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from rewardlab.errors import ConfigError, DataError
from rewardlab.models.resnet import ResNet, map_size
from rewardlab.models.weights import check_weights, encoder_part, norm_of, read_tensor_file


def norm_entries(name: str, channels: int) -> dict[str, tuple[int, ...]]:
    sized = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (channels,))
    return {f"{name}.{key}": shape for key, shape in {**sized, "num_batches_tracked": ()}.items()}


def torchvision_entries(blocks: tuple[int, ...], bottleneck: bool) -> dict[str, tuple[int, ...]]:
    """Names and shapes of torchvision's resnets, written down from its rules."""
    entries: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 7, 7), **norm_entries("bn1", 64)}
    expansion = 4 if bottleneck else 1
    inputs = 64
    for stage, count in enumerate(blocks):
        planes = 64 * 2**stage
        for block in range(count):
            name = f"layer{stage + 1}.{block}"
            if bottleneck:
                shapes = [(planes, inputs, 1, 1), (planes, planes, 3, 3), (4 * planes, planes, 1, 1)]
            else:
                shapes = [(planes, inputs, 3, 3), (planes, planes, 3, 3)]
            for number, shape in enumerate(shapes, start=1):
                entries[f"{name}.conv{number}.weight"] = shape
                entries |= norm_entries(f"{name}.bn{number}", shape[0])
            if block == 0 and (stage > 0 or bottleneck):
                entries[f"{name}.downsample.0.weight"] = (expansion * planes, inputs, 1, 1)
                entries |= norm_entries(f"{name}.downsample.1", expansion * planes)
            inputs = expansion * planes
    return {**entries, "fc.weight": (1000, inputs), "fc.bias": (1000,)}


@pytest.mark.parametrize(
    ("arch", "blocks", "bottleneck", "count"),
    [("resnet18", (2, 2, 2, 2), False, 122), ("resnet50", (3, 4, 6, 3), True, 320)],
)
def test_parameters_are_torchvisions(arch: str, blocks: tuple[int, ...], bottleneck: bool, count: int) -> None:
    expected = torchvision_entries(blocks, bottleneck)
    assert len(expected) == count
    del expected["fc.weight"], expected["fc.bias"]
    with torch.device("meta"):
        assert {name: tuple(value.shape) for name, value in ResNet(arch).state_dict().items()} == expected


def test_resnet10_has_one_block_a_stage() -> None:
    with torch.device("meta"):
        network = ResNet("resnet10")
    assert [len(layer) for layer in (network.layer1, network.layer2, network.layer3, network.layer4)] == [1, 1, 1, 1]
    assert [layer[0].conv1.out_channels for layer in (network.layer1, network.layer4)] == [64, 512]


@pytest.mark.parametrize("size", [32, 33, 64, 100, 224])
def test_map_size(size: int) -> None:
    assert ResNet("resnet10", width=4).eval()(torch.zeros(1, 3, size, 32)).shape == (1, 32, map_size(size), 1)


def test_unknown_arch_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'resnet18'"):
        ResNet("resnet81")


@pytest.fixture
def weights() -> dict[str, Tensor]:
    """What a file of torchvision holds, head included; statistics that differ from those of a new network."""
    torch.manual_seed(0)
    network = ResNet("resnet10", width=4).train()
    network(torch.randn(4, 3, 32, 32))
    return {**network.state_dict(), "fc.weight": torch.zeros(1000, 32), "fc.bias": torch.zeros(1000)}


def load_encoder_weights(encoder: ResNet, path: Path) -> None:
    found = encoder_part(read_tensor_file(path)[0], path)
    check_weights(encoder.state_dict(), found, path)
    encoder.load_state_dict(found)


@pytest.mark.parametrize("wrap", ["plain", "module.", "encoder.", "state_dict", "model_state_dict", "safetensors"])
def test_loads_the_files_of_others(weights: dict[str, Tensor], wrap: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    if wrap == "safetensors":
        path = tmp_path / "weights.safetensors"
        save_file(weights, path)
    elif wrap.endswith("."):
        torch.save({wrap + name: value for name, value in weights.items()}, path)
    else:
        torch.save(weights if wrap == "plain" else {"epoch": 3, wrap: weights}, path)
    network = ResNet("resnet10", width=4)
    load_encoder_weights(network, path)
    assert all(torch.equal(value, weights[name]) for name, value in network.state_dict().items())


def test_old_files_without_counters_load(weights: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save({k: v for k, v in weights.items() if "num_batches" not in k}, tmp_path / "old.pth")
    load_encoder_weights(ResNet("resnet10", width=4), tmp_path / "old.pth")


def test_group_norm_weights_are_recognised(weights: dict[str, Tensor]) -> None:
    assert norm_of(weights) == "batch"
    assert norm_of(ResNet("resnet10", width=4, norm="group").state_dict()) == "group"


def test_disagreement_says_which_and_both_shapes(weights: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save(weights, tmp_path / "w.pt")
    with pytest.raises(DataError, match=r"conv1.weight is \[4, 3, 7, 7\], expected \[8, 3, 7, 7\].*more"):
        load_encoder_weights(ResNet("resnet10", width=8), tmp_path / "w.pt")
    with pytest.raises(DataError, match=r"layer1\.1\.conv1\.weight is missing"):
        load_encoder_weights(ResNet("resnet18", width=4), tmp_path / "w.pt")
    del weights["layer4.0.bn2.running_var"]
    torch.save(weights, tmp_path / "w.pt")
    with pytest.raises(DataError, match=r"layer4\.0\.bn2\.running_var is missing"):
        load_encoder_weights(ResNet("resnet10", width=4), tmp_path / "w.pt")
    with pytest.raises(DataError, match="one ResNet"):
        encoder_part({"head.weight": torch.zeros(1)}, "file")


def test_bad_files(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "attacked",)  # type: ignore[return-value]

    torch.save({"conv1.weight": Attack()}, tmp_path / "hostile.pt")
    (tmp_path / "text.pt").write_text("hello")
    (tmp_path / "empty.pt").touch()
    (tmp_path / "cut.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{")
    (tmp_path / "a.onnx").touch()
    torch.save([1, 2], tmp_path / "list.pt")
    for name in ("hostile.pt", "text.pt", "empty.pt", "cut.safetensors", "a.onnx", "list.pt", "missing.pt"):
        with pytest.raises(DataError, match=name.replace(".", r"\.")):
            read_tensor_file(tmp_path / name)
    assert not (tmp_path / "attacked").exists()
