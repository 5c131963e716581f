"""A fast copy of a classifier for scoring, whose answer for a frame does not depend on the frames scored with it.

Batch norm is folded into the convolutions, and weights and feature maps stay in oneDNN's own blocked layout. That pays
from a few dozen frames on; a single frame takes up to a third longer (benchmarks/scoring.py). TorchScript does the same
slightly faster, but is deprecated and keeps the memory of every copy ever made: 58 MB for each new set of ResNet-18
weights.
"""

import copy
import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from rewardlab.models.classifiers import ImageClassifier
from rewardlab.models.image_preprocessor import Images

CHUNK = 64  # frames through the encoder at once: larger ones fall out of the cache, smaller ones have threads wait
ROWS = 32  # rows through the head at once, always; a multiple of every SIMD width


class InferenceNetwork:
    """The logits of a snapshot of a network's weights. The network itself is not touched."""

    def __init__(self, network: ImageClassifier, dtype: torch.dtype = torch.float32) -> None:
        self.preprocess = network.preprocess
        self.device = network.encoder.conv1.weight.device
        self.dtype = dtype
        self.encoder = copy.deepcopy(network.encoder).eval().requires_grad_(False)
        self.head = copy.deepcopy(network.head).eval().requires_grad_(False)
        self.blocked = self.device.type == "cpu" and dtype == torch.float32 and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        fold_batch_norm(self.encoder)
        if self.blocked:
            _to_blocked_layout(self.encoder)
        else:
            self.encoder.to(dtype=dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.inference_mode()
    def __call__(self, images: Images) -> Tensor:
        pixels = self.preprocess(images, self.device)
        starts = range(0, len(pixels), CHUNK)
        chunks = [self._chunk(pixels[start : start + CHUNK]) for start in starts]
        return torch.cat(chunks) if chunks else torch.empty(0, device=self.device)

    def _chunk(self, pixels: Tensor) -> Tensor:
        # Matrix products and tanh round differently for another number of rows.
        return _in_full_rows(self.head, self._maps(pixels))[: len(pixels)]

    def _maps(self, pixels: Tensor) -> Tensor:
        if self.blocked:
            # oneDNN's blocked convolutions give one image the same bits in any batch, so a short chunk stays short.
            return self.encoder(pixels.flatten(0, 1).to_mkldnn()).to_dense().unflatten(0, pixels.shape[:2])
        padded = _padded(pixels, CHUNK)
        flat = padded.flatten(0, 1).to(self.dtype).contiguous(memory_format=torch.channels_last)
        return self.encoder(flat).float().unflatten(0, padded.shape[:2])


def success_probability(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """sigmoid(logits [N] / temperature), where one logit has one probability whatever stands beside it."""
    # The last numbers of a vector loop take another path through exp and may differ in the last bit: use full rows.
    return _in_full_rows(lambda rows: torch.sigmoid(rows / temperature), logits)


def _in_full_rows(function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Apply `function` to ROWS rows at a time, the last ones filled up with zeros."""
    parts = [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]
    results = [function(_padded(part, ROWS).contiguous())[: len(part)] for part in parts]
    return torch.cat(results) if results else rows


def _padded(rows: Tensor, count: int) -> Tensor:
    missing = count - len(rows)
    return functional.pad(rows, [0] * (2 * rows.ndim - 1) + [missing]) if missing else rows


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


class _DenseNorm(nn.Module):
    """A norm that oneDNN's layout does not have."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.to_dense()).to_mkldnn()


def _to_blocked_layout(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Conv2d):
            child.weight = nn.Parameter(child.weight.detach().to_mkldnn(), requires_grad=False)
            if child.bias is not None:
                child.bias = nn.Parameter(child.bias.detach().to_mkldnn(), requires_grad=False)
        elif isinstance(child, nn.GroupNorm):
            setattr(module, name, _DenseNorm(child))
        else:
            _to_blocked_layout(child)
