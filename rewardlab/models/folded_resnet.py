"""A ResNet whose batch norm is folded into its convolutions, described once for every library that can run it."""

import itertools
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from rewardlab.models.resnet import Bottleneck, ResNet

T = TypeVar("T")  # a tensor, or the name of one in a graph


class Operations(Protocol[T]):
    """The layers of a ResNet in some library. `add` is added to the result, and then `relu` is applied."""

    def convolution(self, layer: nn.Conv2d, x: T, add: T | None = None, relu: bool = False) -> T: ...

    def group_norm(self, layer: nn.GroupNorm, x: T, add: T | None = None, relu: bool = False) -> T: ...

    def max_pool(self, layer: nn.MaxPool2d, x: T) -> T: ...


def run_resnet(encoder: ResNet, x: T, operations: Operations[T]) -> T:
    """Compute the feature map of a ResNet after `fold_batch_norm`.

    `add` of a layer is not used again afterwards, so the result may be written over it.
    """

    def unit(convolution: nn.Conv2d, norm: nn.Module, x: T, add: T | None = None, relu: bool = True) -> T:
        if isinstance(norm, nn.GroupNorm):
            return operations.group_norm(norm, operations.convolution(convolution, x), add, relu)
        return operations.convolution(convolution, x, add, relu)

    x = operations.max_pool(encoder.maxpool, unit(encoder.conv1, encoder.bn1, x))
    blocks: Iterable[Any] = itertools.chain(encoder.layer1, encoder.layer2, encoder.layer3, encoder.layer4)
    for block in blocks:
        shortcut = x
        if block.downsample is not None:
            shortcut = unit(block.downsample[0], block.downsample[1], x, relu=False)
        out = unit(block.conv1, block.bn1, x)
        if isinstance(block, Bottleneck):
            out = unit(block.conv2, block.bn2, out)
            x = unit(block.conv3, block.bn3, out, shortcut)
        else:
            x = unit(block.conv2, block.bn2, out, shortcut)
    return x


def fold_batch_norm(module: nn.Module) -> None:
    """Replace, in place, each convolution that is followed by a batch norm by one convolution with a bias.

    Children of a ResNet are registered in the order in which they are used: conv1, bn1, conv2, bn2 ...
    """
    children = list(module.named_children())
    for (name, child), (next_name, following) in itertools.pairwise(children):
        if isinstance(child, nn.Conv2d) and isinstance(following, nn.BatchNorm2d):
            setattr(module, name, fuse_conv_bn_eval(child, following))
            setattr(module, next_name, nn.Identity())
    for _, child in children:
        fold_batch_norm(child)
