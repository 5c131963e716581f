"""From an observation, states and pictures alike, to the features that policies and critics share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn

from rewardlab.errors import ConfigError
from rewardlab.keys import ACHIEVED_GOAL, DESIRED_GOAL, STATE_NAMES
from rewardlab.models.running_stats import RunningMeanStd

Activation = Literal["tanh", "relu"]
_ACTIVATIONS: dict[Activation, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}

# What policies see as it is. An achieved goal is a part of the state already.
VECTORS = ("state", DESIRED_GOAL)

MIN_IMAGE_SIDE = 32
IMAGE_FEATURES = 128  # numbers that describe one camera's picture
_MAP_SIDE = 8  # stride-2 layers are added until the map is this small, so that large pictures need no huge layer


@contextmanager
def seeded_weights(seed: int) -> Iterator[None]:
    """Layers built inside get weights that follow from `seed`; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def mlp(inputs: int, hidden_sizes: tuple[int, ...], outputs: int, activation: Activation) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size in hidden_sizes:
        layers += [nn.Linear(inputs, size), _ACTIVATIONS[activation]()]
        inputs = size
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


class PictureEncoder(nn.Module):
    """uint8 [B, H, W, 3] to [B, IMAGE_FEATURES]: strided convolutions, then all positions into one layer.

    Positions are kept, not averaged: a policy must know where the object is. The first layer is that of the "Nature
    CNN" (Mnih et al. 2015), padded: its stride of 4 makes this three to four times as fast as two strides of 2.
    """

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 32, 8, stride=4, padding=2), nn.ReLU()]
        layers += [nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU()]
        side = (max(height, width) // 4 + 1) // 2
        while side > _MAP_SIDE:
            layers += [nn.Conv2d(64, 64, 3, stride=2, padding=1), nn.ReLU()]
            side = (side + 1) // 2
        self.convolutions = nn.Sequential(*layers)
        with torch.no_grad():
            positions = self.convolutions(torch.zeros(1, 3, height, width)).numel()
        self.project = nn.Sequential(nn.Linear(positions, IMAGE_FEATURES), nn.LayerNorm(IMAGE_FEATURES), nn.Tanh())

    def forward(self, images: Tensor) -> Tensor:
        # Pictures lie in memory with their colours last, and stay so: convolutions are faster in that format.
        pixels = images.permute(0, 3, 1, 2).float().div_(255)
        return self.project(self.convolutions(pixels).flatten(1))


class ObservationEncoder(nn.Module):
    """Observations [...] to features [..., size]: normalised states and goals as they are, pictures through a CNN each.

    The running statistics of states and goals change only in `update_statistics`, so that a policy stays the same
    function for as long as its learner needs it to.
    """

    def __init__(self, observation_space: spaces.Space[Any], normalize_states: bool) -> None:
        super().__init__()
        vectors, images = _parts(observation_space)
        self.cameras = tuple(sorted(images))
        self.pictures = nn.ModuleList(PictureEncoder(*images[camera]) for camera in self.cameras)
        self.vectors = tuple(vectors)
        width = sum(vectors.values())
        self.normalizer = RunningMeanStd((width,)) if width and normalize_states else None
        self.size = width + IMAGE_FEATURES * len(self.cameras)

    def forward(self, observation: TensorDict) -> Tensor:
        features = []
        if self.vectors:
            seen = self._seen(observation)
            features.append(seen if self.normalizer is None else self.normalizer(seen))
        for camera, encoder in zip(self.cameras, self.pictures, strict=True):
            images: Tensor = observation["images"][camera]
            lead = images.shape[:-3]
            features.append(encoder(images.reshape(-1, *images.shape[-3:])).reshape(*lead, IMAGE_FEATURES))
        return features[0] if len(features) == 1 else torch.cat(features, dim=-1)

    def update_statistics(self, observation: TensorDict) -> None:
        if self.normalizer is not None:
            self.normalizer.update(self._seen(observation))

    def _seen(self, observation: TensorDict) -> Tensor:
        parts: list[Tensor] = [observation[name] for name in self.vectors]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def make_encoder(
    observation_space: spaces.Space[Any], kind: Literal["mlp", "cnn"], normalize_states: bool
) -> ObservationEncoder:
    """The encoder for a space; `kind` is what the user thinks the observations are, and must agree with it."""
    encoder = ObservationEncoder(observation_space, normalize_states)
    found = "cnn" if encoder.cameras else "mlp"
    if kind != found:
        seen = f"images of {', '.join(encoder.cameras)}" if encoder.cameras else "states only"
        raise ConfigError(
            f"actor.model.kind: found '{kind}', expected '{found}', because the observations are {seen} "
            "(env.train.obs_mode)"
        )
    return encoder


def _parts(space: spaces.Space[Any]) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
    """The sizes of the VECTORS that there are, and the height and width of each camera's pictures."""
    named = space.spaces if isinstance(space, spaces.Dict) else {"state": space}
    known = {*STATE_NAMES, ACHIEVED_GOAL, DESIRED_GOAL, "images"}
    if not set(named) <= known or not isinstance(named.get("images", spaces.Dict({})), spaces.Dict):
        raise _unsuitable(space)
    vectors: dict[str, int] = {}
    for key, part in named.items():
        if key != "images":
            if not isinstance(part, spaces.Box) or len(part.shape) != 1:
                raise _unsuitable(space)
            vectors["state" if key in STATE_NAMES else key] = part.shape[0]
    images = _picture_sizes(named.get("images", spaces.Dict({})))
    if "state" not in vectors and not images:
        raise ConfigError(f"observation space {space} has neither a state nor images")
    return {name: vectors[name] for name in VECTORS if name in vectors}, images


def _unsuitable(space: spaces.Space[Any]) -> ConfigError:
    return ConfigError(
        f"observation space {space}: expected a Box of states [S], or a Dict of 'state' (or 'observation') and "
        f"'images' (a Dict of cameras), and '{ACHIEVED_GOAL}' and '{DESIRED_GOAL}' where there are goals"
    )


def _picture_sizes(cameras: spaces.Dict) -> dict[str, tuple[int, int]]:
    images: dict[str, tuple[int, int]] = {}
    for camera, box in cameras.items():
        shape = box.shape or ()
        if len(shape) != 3 or shape[2] != 3 or min(shape[:2]) < MIN_IMAGE_SIDE:
            raise ConfigError(
                f"images of camera '{camera}' have shape {list(shape)}; expected [H, W, 3] with a height and a width "
                f"of at least {MIN_IMAGE_SIDE}"
            )
        images[camera] = shape[0], shape[1]
    return images
