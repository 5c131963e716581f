"""Residual networks (He et al. 2016) with torchvision's parameter names: its and timm's weights load as they are.

torchvision itself is not needed. `forward` stops at the feature map; what follows it is the business of the model that
uses it, so the last layer of ImageNet models (`fc`) does not exist here.
"""

import math
from typing import Literal, NamedTuple, TypeAlias, get_args

from torch import Tensor, nn
from torch.nn import functional

from rewardlab.errors import ConfigError
from rewardlab.registry import unknown_name

Norm: TypeAlias = Literal["batch", "group"]
# How layers with stride 2 pad their maps: one pixel on each side as in torch, or "SAME" as in JAX and TensorFlow.
Padding: TypeAlias = Literal["symmetric", "same"]


def _norm_layer(norm: Norm, channels: int) -> nn.Module:
    # Four groups as in the ResNet-10 weights that RLinf and HIL-SERL users have; they too name the layers bn1, bn2 ...
    return nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(4, channels)


class SameConv2d(nn.Conv2d):
    """A 3x3 convolution with stride 2 and the padding "SAME": maps of even size are padded at their ends only."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, stride=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(pad_same(x, 0.0))


class SameMaxPool2d(nn.MaxPool2d):
    """A 3x3 maximum with stride 2 and the padding "SAME"."""

    def __init__(self) -> None:
        super().__init__(3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(pad_same(x, -math.inf))


def pad_same(x: Tensor, value: float) -> Tensor:
    """Pad a map so that windows of 3x3 with stride 2 give half its size, rounded up."""
    height, width = x.shape[-2:]
    return functional.pad(x, (width % 2, 1, height % 2, 1), value=value)


def _conv3x3(inputs: int, outputs: int, stride: int, padding: Padding) -> nn.Conv2d:
    if stride == 2 and padding == "same":
        return SameConv2d(inputs, outputs)
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(
        self, inputs: int, planes: int, stride: int, norm: Norm, downsample: nn.Module | None, padding: Padding
    ) -> None:
        super().__init__()
        self.conv1 = _conv3x3(inputs, planes, stride, padding)
        self.bn1 = _norm_layer(norm, planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = _norm_layer(norm, planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(
        self, inputs: int, planes: int, stride: int, norm: Norm, downsample: nn.Module | None, padding: Padding
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
        self.bn1 = _norm_layer(norm, planes)
        # The stride is on the 3x3 convolution as in torchvision and timm, not on the 1x1 as in the paper.
        self.conv2 = _conv3x3(planes, planes, stride, padding)
        self.bn2 = _norm_layer(norm, planes)
        self.conv3 = nn.Conv2d(planes, planes * self.expansion, 1, bias=False)
        self.bn3 = _norm_layer(norm, planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class _Layout(NamedTuple):
    block: type[BasicBlock] | type[Bottleneck]
    blocks: tuple[int, int, int, int]


ARCHITECTURES: dict[str, _Layout] = {
    "resnet10": _Layout(BasicBlock, (1, 1, 1, 1)),
    "resnet18": _Layout(BasicBlock, (2, 2, 2, 2)),
    "resnet34": _Layout(BasicBlock, (3, 4, 6, 3)),
    "resnet50": _Layout(Bottleneck, (3, 4, 6, 3)),
    "resnet101": _Layout(Bottleneck, (3, 4, 23, 3)),
    "resnet152": _Layout(Bottleneck, (3, 8, 36, 3)),
}


class ResNet(nn.Module):
    """Images [B, 3, H, W] to a feature map [B, channels, ceil(H / 32), ceil(W / 32)]."""

    def __init__(
        self, arch: str = "resnet18", *, width: int = 64, norm: Norm = "batch", padding: Padding = "symmetric"
    ) -> None:
        super().__init__()
        if arch not in ARCHITECTURES:
            raise ConfigError(unknown_name("arch", arch, ARCHITECTURES))
        if padding not in get_args(Padding):
            raise ConfigError(unknown_name("padding", str(padding), get_args(Padding)))
        block, counts = ARCHITECTURES[arch]
        self.channels = 8 * width * block.expansion
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = _norm_layer(norm, width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = SameMaxPool2d() if padding == "same" else nn.MaxPool2d(3, stride=2, padding=1)

        inputs = width

        def stage(index: int) -> nn.Sequential:
            nonlocal inputs
            planes, blocks = width * 2**index, []
            for number in range(counts[index]):
                stride = 2 if index > 0 and number == 0 else 1
                outputs = planes * block.expansion
                shortcut = None
                if stride != 1 or inputs != outputs:
                    shortcut = nn.Sequential(
                        nn.Conv2d(inputs, outputs, 1, stride, bias=False), _norm_layer(norm, outputs)
                    )
                blocks.append(block(inputs, planes, stride, norm, shortcut, padding))
                inputs = outputs
            return nn.Sequential(*blocks)

        self.layer1, self.layer2, self.layer3, self.layer4 = (stage(index) for index in range(4))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))


def map_size(size: int) -> int:
    """Height or width of the feature map for images of this height or width."""
    return -(-size // 32)
