"""Networks over observations of any kind: vectors, images of any size, and dictionaries of both.

An observation is a mapping from the names of its parts to tensors [B, ...]. A part with three axes is an image, its
shorter end the colours; anything else is a vector.
"""

import itertools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from rewardlab.models.running_stats import RunningMeanStd

Shapes = Mapping[str, Sequence[int]]
Parts = Mapping[str, Tensor]

CLIP = 5.0  # deviations: RND, section 2.4
_POOLED = 4  # side of the feature map that any image is brought to


def is_image(shape: Sequence[int]) -> bool:
    return len(shape) == 3


def channels_first(images: Tensor, shape: Sequence[int]) -> Tensor:
    return images.permute(0, 3, 1, 2) if shape[-1] <= shape[0] else images


def pixels_to_floats(images: Tensor) -> Tensor:
    """uint8 to [0, 1]; floats are taken to be in it."""
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


class ObservationNorm(nn.Module):
    """Standardises the parts of an observation by running statistics, clipped; images become floats.

    Pixels are standardised one by one if `pixels` is set. That makes small changes large, which novelty wants and
    a discriminator does not.
    """

    def __init__(self, shapes: Shapes, *, vectors: bool = True, pixels: bool = False) -> None:
        super().__init__()
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}
        wanted = {name: pixels if is_image(shape) else vectors for name, shape in self.shapes.items()}
        self._index = {name: i for i, name in enumerate(name for name in self.shapes if wanted[name])}
        self.statistics = nn.ModuleList(RunningMeanStd(self.shapes[name]) for name in self._index)

    def _of(self, name: str) -> RunningMeanStd:
        found = self.statistics[self._index[name]]
        assert isinstance(found, RunningMeanStd)
        return found

    def update(self, observation: Parts) -> None:
        for name in self._index:
            self._of(name).update(pixels_to_floats(observation[name]))

    def forward(self, observation: Parts) -> dict[str, Tensor]:
        floats = {name: pixels_to_floats(observation[name]) for name in self.shapes}
        for name in self._index:
            statistics = self._of(name)
            floats[name] = (floats[name] - statistics.mean.float()).div_(statistics.std).clamp_(-CLIP, CLIP)
        return floats


def perceptron(sizes: Sequence[int], *, last_bias: bool = True) -> nn.Sequential:
    """Linear layers with ReLU between them, orthogonal as in RND and PPO."""
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(sizes), start=2):
        layers += [nn.ReLU(inplace=True)] * (i > 2)
        layers.append(orthogonal(nn.Linear(inputs, outputs, bias=last_bias or i < len(sizes))))
    return nn.Sequential(*layers)


def orthogonal(layer: nn.Linear | nn.Conv2d) -> nn.Module:
    nn.init.orthogonal_(layer.weight, 2**0.5)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


class ObservationNetwork(nn.Module):
    """Vectors (and `extra` numbers, such as an action) beside convolved images, through a perceptron.

    `hidden_size_list` are its layers; `outputs` is one more, or None if the last of the list is the answer. Without
    `last_bias` the answer has no level of its own, for losses that would give it no gradient.
    """

    def __init__(
        self,
        shapes: Shapes,
        hidden_size_list: Sequence[int],
        *,
        outputs: int | None = None,
        extra: int = 0,
        last_bias: bool = True,
    ) -> None:
        super().__init__()
        self.vectors = [name for name, shape in shapes.items() if not is_image(shape)]
        self.image_shapes = {name: tuple(shape) for name, shape in shapes.items() if is_image(shape)}
        self.convolutions = nn.ModuleList(_convolutions(min(s[0], s[-1])) for s in self.image_shapes.values())
        width = extra + 64 * _POOLED**2 * len(self.image_shapes)
        width += sum(int(torch.Size(shapes[name]).numel()) for name in self.vectors)
        sizes = [width, *hidden_size_list, *([] if outputs is None else [outputs])]
        self.perceptron = perceptron(sizes, last_bias=last_bias)

    def forward(self, observation: Parts, extra: Tensor | None = None) -> Tensor:
        """`observation` holds floats, as `ObservationNorm` gives them."""
        return self.answer(self.convolved(observation), extra)

    def convolved(self, observation: Parts) -> Tensor:
        """What the perceptron sees of an observation; to ask for several `extra` without convolving again."""
        parts = [observation[name].flatten(1) for name in self.vectors]
        for convolve, (name, shape) in zip(self.convolutions, self.image_shapes.items(), strict=True):
            parts.append(convolve(channels_first(observation[name], shape)))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def answer(self, convolved: Tensor, extra: Tensor | None = None) -> Tensor:
        return self.perceptron(convolved if extra is None else torch.cat([convolved, extra], dim=1))


def _convolutions(channels: int) -> nn.Sequential:
    # Padding keeps at least one position of the smallest image; pooling gives every size the same number of features.
    return nn.Sequential(
        orthogonal(nn.Conv2d(channels, 32, 3, stride=2, padding=1)),
        nn.ReLU(inplace=True),
        orthogonal(nn.Conv2d(32, 64, 3, stride=2, padding=1)),
        nn.ReLU(inplace=True),
        orthogonal(nn.Conv2d(64, 64, 3, stride=2, padding=1)),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(_POOLED),
        nn.Flatten(),
    )
