"""A fast copy of a classifier for scoring; on the CPU in fp32 a frame has the same score whatever is scored with it.

Batch norm is folded into the convolutions, and the copy runs in one of three ways:

- on the CPU in fp32, oneDNN's convolutions with weights in the layout that they need, followed by the addition and
  the ReLU inside the same call. Without this, torch brings the weights into that layout at every call: 2.0 to 2.7 of
  5.7 ms for one frame in ResNet-10 (`ONEDNN_VERBOSE=1` shows the reorders). `to_mkldnn` does not help, and neither
  does `mkldnn_reorder_conv2d_weight`, which prepares a layout that `mkldnn_convolution` then does not choose.
- on the CPU in fp32 with ONNX Runtime, if it is asked for: equal within 1e-5, and about as fast.
- elsewhere (another device, bf16), channels last, in batches of a few sizes. There a frame that is scored alone and in
  a large batch may differ in the last bits.

TorchScript keeps the memory of every copy ever made: 58 MB for each new set of ResNet-18 weights.
"""

import copy
import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from rewardlab.models.classifiers import ImageClassifier
from rewardlab.models.folded_resnet import fold_batch_norm, run_resnet
from rewardlab.models.image_preprocessor import Images
from rewardlab.models.onnx_encoder import OnnxEncoder
from rewardlab.models.resnet import ResNet, SameConv2d, pad_same

InferenceBackend: TypeAlias = Literal["torch", "onnx"]

CHUNK = 64  # frames through the encoder at once, at most
CHUNK_BYTES = 2**25 - 2**16  # of the largest map on the CPU: glibc's malloc gives larger blocks back after each use
PADDED_SIZES = (1, 8, CHUNK)  # batches on other devices: few sizes, of which convolutions round alike
ROWS = 32  # rows through the head at once, always; a multiple of every SIMD width


class InferenceNetwork:
    """The logits of a snapshot of a network's weights. The network itself is not touched."""

    def __init__(
        self, network: ImageClassifier, dtype: torch.dtype = torch.float32, backend: InferenceBackend = "torch"
    ) -> None:
        self.preprocess = network.preprocess
        self.device = network.encoder.conv1.weight.device
        self.dtype = dtype
        self.head = copy.deepcopy(network.head).eval().requires_grad_(False)
        encoder = copy.deepcopy(network.encoder).eval().requires_grad_(False)
        fold_batch_norm(encoder)
        self.width = encoder.conv1.out_channels
        self.any_batch = True  # one image has the same bits in any batch
        self.encoder: Callable[[Tensor], Any]
        if backend == "onnx":
            self.encoder = OnnxEncoder(encoder)
        elif self.device.type == "cpu" and dtype == torch.float32 and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            self.encoder = _PackedEncoder(encoder, self.preprocess.image_size)
        else:
            self.encoder = encoder.to(dtype=dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.any_batch = False

    @torch.inference_mode()
    def __call__(self, images: Images) -> Tensor:
        pixels = self.preprocess(images, self.device)
        if not len(pixels):
            return torch.empty(0, device=self.device)
        maps = torch.cat([self._maps(chunk) for chunk in torch.split(pixels, self._chunk_size(len(pixels)))])
        # Matrix products and tanh round differently for another number of rows.
        return _in_full_rows(self.head, maps)

    def _chunk_size(self, count: int) -> int:
        if not self.any_batch:
            return CHUNK
        _, height, width = self.preprocess.image_size
        # The first convolution has the largest map, of half the height and width.
        bytes_each = len(self.preprocess.image_keys) * self.width * math.ceil(height / 2) * math.ceil(width / 2) * 4
        chunks = math.ceil(count / max(1, min(CHUNK, CHUNK_BYTES // bytes_each)))
        return math.ceil(count / chunks)

    def _maps(self, pixels: Tensor) -> Tensor:
        if self.any_batch:
            return self.encoder(pixels.flatten(0, 1)).unflatten(0, pixels.shape[:2])
        padded = _padded(pixels, next(size for size in PADDED_SIZES if size >= len(pixels)))
        flat = padded.flatten(0, 1).to(self.dtype).contiguous(memory_format=torch.channels_last)
        return self.encoder(flat).float().unflatten(0, padded.shape[:2])[: len(pixels)]


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


class _PackedEncoder:
    """Pixels [B, 3, H, W] to feature maps, by oneDNN's convolutions with weights in the layout that they need."""

    def __init__(self, encoder: ResNet, image_size: tuple[int, int, int]) -> None:
        self.encoder = encoder
        with torch.inference_mode():
            self(torch.zeros(1, *image_size))  # packs the weights: the layout depends on the size of the map

    def __call__(self, pixels: Tensor) -> Tensor:
        maps: Tensor = run_resnet(self.encoder, pixels.contiguous(memory_format=torch.channels_last), self)
        return maps.contiguous()

    def convolution(self, layer: nn.Conv2d, x: Tensor, add: Tensor | None = None, relu: bool = False) -> Tensor:
        if isinstance(layer, SameConv2d):
            x = pad_same(x, 0.0)
        # The operations that torch.compile uses on a CPU; their arguments end with parameters of the activation.
        geometry = (layer.padding, layer.stride, layer.dilation, layer.groups)
        if not layer.weight.is_mkldnn:
            packed = torch.ops.mkldnn._reorder_convolution_weight(layer.weight, *geometry, x.shape)
            layer.weight = nn.Parameter(packed, requires_grad=False)
        arguments = (x, layer.weight, layer.bias, *geometry)
        activation = "relu" if relu else None
        if add is not None:
            run = torch.ops.mkldnn._convolution_pointwise_.binary
            return run(add, *arguments, "add", 1.0, activation, [], "")
        return torch.ops.mkldnn._convolution_pointwise(*arguments, activation or "none", [], "")

    def group_norm(self, layer: nn.GroupNorm, x: Tensor, add: Tensor | None = None, relu: bool = False) -> Tensor:
        x = layer(x) if add is None else layer(x).add_(add)
        return x.relu_() if relu else x

    def max_pool(self, layer: nn.MaxPool2d, x: Tensor) -> Tensor:
        return layer(x)
