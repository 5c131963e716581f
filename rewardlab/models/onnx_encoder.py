"""Runs the encoder of a classifier with ONNX Runtime (`pip install 'rewardlab[onnx]'`), on the CPU in fp32.

The graph is built here, layer by layer, and lives in memory only. torch's exporter needs another package and takes
seconds; this takes a fraction of one, so that a classifier can be exported after each co-training update.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rewardlab.models.folded_resnet import run_resnet
from rewardlab.models.resnet import ResNet, SameConv2d, SameMaxPool2d

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto


def onnx_installed() -> bool:
    return all(find_spec(package) is not None for package in ("onnx", "onnxruntime"))


class OnnxEncoder:
    """Pixels [B, 3, H, W] to feature maps, with the weights that a folded ResNet has now."""

    def __init__(self, encoder: ResNet) -> None:
        from onnxruntime import InferenceSession, SessionOptions

        options = SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        # Threads that wait in a loop keep the core from other processes, such as environment workers.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3  # errors
        self.session = InferenceSession(_export(encoder), options, providers=["CPUExecutionProvider"])

    def __call__(self, pixels: Tensor) -> Tensor:
        (maps,) = self.session.run(None, {"pixels": pixels.numpy()})
        return torch.from_numpy(maps)


def _export(encoder: ResNet) -> bytes:
    from onnx import TensorProto, helper

    graph = _Graph()
    output = run_resnet(encoder, "pixels", graph)
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", 3, "height", "width"])
    maps = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", encoder.channels, None, None])
    model = helper.make_model(
        helper.make_graph(graph.nodes, "encoder", [pixels], [maps], graph.weights),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,  # old versions of ONNX Runtime read it too
    )
    return model.SerializeToString()


class _Graph:
    """The layers of a ResNet as nodes of an ONNX graph; a tensor is its name."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []

    def convolution(self, layer: nn.Conv2d, x: str, add: str | None = None, relu: bool = False) -> str:
        weights = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]
        padding: dict[str, Any] = {"pads": [int(side) for side in layer.padding] * 2}
        if isinstance(layer, SameConv2d):
            padding = {"auto_pad": "SAME_UPPER"}
        names = [self._weight(weight) for weight in weights]
        return self._finish(self._node("Conv", x, *names, strides=list(layer.stride), **padding), add, relu)

    def group_norm(self, layer: nn.GroupNorm, x: str, add: str | None = None, relu: bool = False) -> str:
        # ONNX has a node for it only in newer versions: an instance norm of the groups does the same.
        groups, channels = layer.num_groups, layer.num_channels
        grouped = self._node("Reshape", x, self._weight(torch.tensor([0, groups, -1])))
        ones, zeros = self._weight(torch.ones(groups)), self._weight(torch.zeros(groups))
        normed = self._node("InstanceNormalization", grouped, ones, zeros, epsilon=layer.eps)
        normed = self._node("Reshape", normed, self._node("Shape", x))
        scale, shift = (self._weight(weight.view(channels, 1, 1)) for weight in (layer.weight, layer.bias))
        return self._finish(self._node("Add", self._node("Mul", normed, scale), shift), add, relu)

    def max_pool(self, layer: nn.MaxPool2d, x: str) -> str:
        padding: dict[str, Any] = {"pads": [layer.padding] * 4}
        if isinstance(layer, SameMaxPool2d):
            padding = {"auto_pad": "SAME_UPPER"}
        sizes = {"kernel_shape": layer.kernel_size, "strides": layer.stride}
        return self._node("MaxPool", x, **padding, **{key: [size] * 2 for key, size in sizes.items()})

    def _finish(self, x: str, add: str | None, relu: bool) -> str:
        if add is not None:
            x = self._node("Add", x, add)
        return self._node("Relu", x) if relu else x

    def _node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        name = f"x{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def _weight(self, values: Tensor) -> str:
        from onnx import numpy_helper

        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values.detach().numpy(), name))
        return name
