"""Networks over observations: the parts that policies, critics and the reward models of the zoo are built of.

All of them put the vectors of an observation beside features of its pictures (`join_features`) and use the same layers
(`mlp`, `convolutions`) and the same running statistics. They are two configurations of that: `ObservationEncoder` gives
policies and critics features in which positions are kept; `ObservationNetwork` takes pictures of any size and number of
colours, and gives reward models numbers.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn

from rewardlab.errors import ConfigError
from rewardlab.keys import DESIRED_GOAL
from rewardlab.models.running_stats import RunningMeanStd
from rewardlab.observations import IMAGE_PART, VECTOR_PARTS, is_image, space_shapes

Parts = Mapping[str, Tensor]  # an observation, by the names that `rewardlab.observations` gives its parts
Activation = Literal["tanh", "relu"]
Convolution = tuple[int, int, int, int]  # output channels, kernel, stride, padding

# Policies do not see the achieved goal: it is a part of the state already.
VECTORS = (VECTOR_PARTS[0], DESIRED_GOAL)

MIN_IMAGE_SIDE = 32
IMAGE_FEATURES = 128  # features of one camera's picture
_MAP_SIDE = 8  # stride-2 layers are added until the feature map is this small; large pictures need no huge layer then
_POOLED = 4  # side of the feature map to which reward models pool any picture
_CLIP = 5.0  # standard deviations: RND, section 2.4


@contextmanager
def seeded_weights(seed: int) -> Iterator[None]:
    """Initialise the layers built inside from `seed`, and leave torch's global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def make_activation(name: Activation | None) -> nn.Module:
    return nn.Tanh() if name == "tanh" else nn.ReLU(inplace=True)


def mlp(
    sizes: Sequence[int], activation: Activation = "relu", *, orthogonal: bool = False, last_bias: bool = True
) -> nn.Sequential:
    """Build linear layers of these sizes, the first of which is the input, with activations between them."""
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(sizes), start=2):
        linear = nn.Linear(inputs, outputs, bias=last_bias or i < len(sizes))
        layers += [init_orthogonal(linear) if orthogonal else linear, make_activation(activation)]
    return nn.Sequential(*layers[:-1])


def convolutions(channels: int, layers: Iterable[Convolution], *, orthogonal: bool = False) -> list[nn.Module]:
    """Build convolutions, each followed by a ReLU."""
    modules: list[nn.Module] = []
    for outputs, kernel, stride, padding in layers:
        layer = nn.Conv2d(channels, outputs, kernel, stride=stride, padding=padding)
        modules += [init_orthogonal(layer) if orthogonal else layer, make_activation("relu")]
        channels = outputs
    return modules


def init_orthogonal(layer: nn.Linear | nn.Conv2d, gain: float = 2**0.5) -> nn.Module:
    """Initialise a layer as in RND and PPO."""
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def channels_first(images: Tensor, shape: Sequence[int]) -> Tensor:
    """Move the colours of [B, ...] to the front: they are the shorter end of the picture's `shape`."""
    return images.permute(0, 3, 1, 2) if shape[-1] <= shape[0] else images


def pixels_to_floats(images: Tensor) -> Tensor:
    """Scale uint8 to [0, 1]; floats are taken to be in that range already."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images.float()


def join_features(vectors: Iterable[Tensor], images: Iterable[Tensor], networks: Iterable[nn.Module]) -> Tensor:
    """Concatenate vectors [..., S] and what each network makes of its pictures [..., *picture] along the last axis."""
    features = list(vectors)
    for pictures, network in zip(images, networks, strict=True):
        encoded = network(pictures.reshape(-1, *pictures.shape[-3:]))
        features.append(encoded.reshape(*pictures.shape[:-3], encoded.shape[-1]))
    return features[0] if len(features) == 1 else torch.cat(features, dim=-1)


class PictureEncoder(nn.Module):
    """Maps pictures [B, H, W, 3] to [B, IMAGE_FEATURES]: strided convolutions, then all positions into one layer.

    Positions are kept, not averaged: a policy must know where the object is. The first layer is that of the "Nature
    CNN" (Mnih et al. 2015), padded: its stride of 4 makes this three to four times as fast as two strides of 2.
    """

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        layers: list[Convolution] = [(32, 8, 4, 2), (64, 3, 2, 1)]
        side = (max(height, width) // 4 + 1) // 2
        while side > _MAP_SIDE:
            layers.append((64, 3, 2, 1))
            side = (side + 1) // 2
        self.convolutions = nn.Sequential(*convolutions(3, layers))
        with torch.no_grad():
            positions = self.convolutions(torch.zeros(1, 3, height, width)).numel()
        self.project = nn.Sequential(nn.Linear(positions, IMAGE_FEATURES), nn.LayerNorm(IMAGE_FEATURES), nn.Tanh())

    def forward(self, images: Tensor) -> Tensor:
        # Pictures lie in memory with their colours last, and stay so: convolutions are faster in that format.
        pixels = pixels_to_floats(images.permute(0, 3, 1, 2))
        return self.project(self.convolutions(pixels).flatten(1))


class ObservationEncoder(nn.Module):
    """Maps a policy's observations [...] to features [..., size], which its critics share.

    The running statistics of states and goals change only in `update_statistics`, so that a policy stays the same
    function for as long as its learner needs it to.
    """

    def __init__(self, observation_space: spaces.Space[Any], normalize_states: bool) -> None:
        super().__init__()
        shapes = _policy_shapes(observation_space)
        self.cameras = tuple(name.removeprefix(IMAGE_PART) for name, shape in shapes.items() if is_image(shape))
        self.pictures = nn.ModuleList(PictureEncoder(*shapes[IMAGE_PART + camera][:2]) for camera in self.cameras)
        self.vectors = tuple(name for name in VECTORS if name in shapes)
        width = sum(torch.Size(shapes[name]).numel() for name in self.vectors)
        self.normalizer = RunningMeanStd((width,)) if width and normalize_states else None
        self.size = width + IMAGE_FEATURES * len(self.cameras)

    def forward(self, observation: TensorDict) -> Tensor:
        vectors = [self._vector(observation)] if self.vectors else []
        if self.normalizer is not None:
            vectors = [self.normalizer(vector) for vector in vectors]
        return join_features(vectors, (observation["images", camera] for camera in self.cameras), self.pictures)

    def update_statistics(self, observation: TensorDict) -> None:
        if self.normalizer is not None:
            self.normalizer.update(self._vector(observation))

    def _vector(self, observation: TensorDict) -> Tensor:
        return join_features((observation[name] for name in self.vectors), (), ())


def make_encoder(
    observation_space: spaces.Space[Any], kind: Literal["mlp", "cnn"], normalize_states: bool
) -> ObservationEncoder:
    """Build the encoder for a space; the `kind` of the config must agree with it."""
    encoder = ObservationEncoder(observation_space, normalize_states)
    found = "cnn" if encoder.cameras else "mlp"
    if kind != found:
        seen = f"images of {', '.join(encoder.cameras)}" if encoder.cameras else "states only"
        raise ConfigError(
            f"actor.model.kind: found '{kind}', expected '{found}', because the observations are {seen} "
            "(env.train.obs_mode)"
        )
    return encoder


def _policy_shapes(space: spaces.Space[Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of an observation's parts, once it is clear that a policy can be built on them."""
    shapes = space_shapes(space, known_only=True)
    if shapes.keys() <= {*VECTOR_PARTS[1:]}:
        raise ConfigError(f"observation space {space} has neither a state nor images")
    for name, shape in shapes.items():
        if name in VECTOR_PARTS and is_image(shape):
            raise ConfigError(f"observation space {space}: '{name}' has pictures; expected them under 'images'")
        if name not in VECTOR_PARTS and (not is_image(shape) or shape[2] != 3 or min(shape[:2]) < MIN_IMAGE_SIDE):
            raise ConfigError(
                f"images of camera '{name.removeprefix(IMAGE_PART)}' have shape {list(shape)}; expected [H, W, 3] with "
                f"a height and a width of at least {MIN_IMAGE_SIDE}"
            )
    return shapes


class ObservationNorm(nn.Module):
    """Standardises the parts of an observation by running statistics, clipped; pictures become floats.

    Pixels are standardised one by one if `pixels` is set. That makes small changes large, which novelty wants and
    a discriminator does not.
    """

    def __init__(self, shapes: Mapping[str, Sequence[int]], *, vectors: bool = True, pixels: bool = False) -> None:
        super().__init__()
        self.names = tuple(shapes)
        self._normalized = [name for name, shape in shapes.items() if (pixels if is_image(shape) else vectors)]
        self.statistics = nn.ModuleList(RunningMeanStd(tuple(shapes[name]), clip=_CLIP) for name in self._normalized)

    def update(self, observation: Parts) -> None:
        for name, statistics in zip(self._normalized, self.statistics, strict=True):
            assert isinstance(statistics, RunningMeanStd)
            statistics.update(pixels_to_floats(observation[name]))

    def forward(self, observation: Parts) -> dict[str, Tensor]:
        floats = {name: pixels_to_floats(observation[name]) for name in self.names}
        for name, statistics in zip(self._normalized, self.statistics, strict=True):
            floats[name] = statistics(floats[name])
        return floats


class ObservationNetwork(nn.Module):
    """Puts vectors (and `extra` numbers, such as an action) beside convolved pictures, and both through an MLP.

    `hidden_size_list` are its layers; `outputs` is one more, or None if the last of the list is the output. Without
    `last_bias` the output has no level of its own, for losses that would give it no gradient.
    """

    def __init__(
        self,
        shapes: Mapping[str, Sequence[int]],
        hidden_size_list: Sequence[int],
        *,
        outputs: int | None = None,
        extra: int = 0,
        last_bias: bool = True,
    ) -> None:
        super().__init__()
        self.vectors = [name for name, shape in shapes.items() if not is_image(shape)]
        self.image_shapes = {name: tuple(shape) for name, shape in shapes.items() if is_image(shape)}
        self.convolutions = nn.ModuleList(_pooled_convolutions(min(s[0], s[-1])) for s in self.image_shapes.values())
        width = extra + 64 * _POOLED**2 * len(self.image_shapes)
        width += sum(torch.Size(shapes[name]).numel() for name in self.vectors)
        sizes = [width, *hidden_size_list, *([] if outputs is None else [outputs])]
        self.perceptron = mlp(sizes, orthogonal=True, last_bias=last_bias)

    def forward(self, observation: Parts, extra: Tensor | None = None) -> Tensor:
        """Return the output for floats, as `ObservationNorm` gives them."""
        return self.from_features(self.features(observation), extra)

    def features(self, observation: Parts) -> Tensor:
        """Return the MLP's input, for callers that try several `extra` without convolving again."""
        vectors = (observation[name].flatten(1) for name in self.vectors)
        images = (channels_first(observation[name], shape) for name, shape in self.image_shapes.items())
        return join_features(vectors, images, self.convolutions)

    def from_features(self, features: Tensor, extra: Tensor | None = None) -> Tensor:
        return self.perceptron(features if extra is None else torch.cat([features, extra], dim=1))


def _pooled_convolutions(channels: int) -> nn.Sequential:
    # Padding keeps at least one position of the smallest picture; pooling gives every size the same number of features.
    layers = convolutions(channels, [(32, 3, 2, 1), (64, 3, 2, 1), (64, 3, 2, 1)], orthogonal=True)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(_POOLED), nn.Flatten())
