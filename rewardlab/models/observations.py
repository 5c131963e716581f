"""From an observation, states and pictures alike, to the features that policies and critics share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn

from rewardlab.errors import ConfigError
from rewardlab.models.running_stats import RunningMeanStd

Activation = Literal["tanh", "relu"]
_ACTIVATIONS: dict[Activation, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}

MIN_IMAGE_SIDE = 32
IMAGE_FEATURES = 128  # numbers that describe one camera's picture
_CHANNELS = (32, 64, 64)
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

    Positions are kept, not averaged: a policy must know where the object is.
    """

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs, side = 3, max(height, width)
        while len(layers) < 2 * len(_CHANNELS) or side > _MAP_SIDE:
            outputs = _CHANNELS[min(len(layers) // 2, len(_CHANNELS) - 1)]
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.ReLU()]
            inputs, side = outputs, (side + 1) // 2
        self.convolutions = nn.Sequential(*layers)
        with torch.no_grad():
            positions = self.convolutions(torch.zeros(1, 3, height, width)).numel()
        self.project = nn.Sequential(nn.Linear(positions, IMAGE_FEATURES), nn.LayerNorm(IMAGE_FEATURES), nn.Tanh())

    def forward(self, images: Tensor) -> Tensor:
        # Pictures lie in memory with their colours last, and stay so: convolutions are faster in that format.
        pixels = images.permute(0, 3, 1, 2).float().div_(255)
        return self.project(self.convolutions(pixels).flatten(1))


class ObservationEncoder(nn.Module):
    """Observations [...] to features [..., size]: normalised states as they are, pictures through a CNN a camera.

    The running statistics of the states change only in `update_statistics`, so that a policy stays the same
    function for as long as its learner needs it to.
    """

    def __init__(self, observation_space: spaces.Space[Any], normalize_states: bool) -> None:
        super().__init__()
        state, images = _parts(observation_space)
        self.cameras = tuple(sorted(images))
        self.pictures = nn.ModuleList(PictureEncoder(*images[camera]) for camera in self.cameras)
        self.state_size = state
        self.normalizer = RunningMeanStd((state,)) if state and normalize_states else None
        self.size = state + IMAGE_FEATURES * len(self.cameras)

    def forward(self, observation: TensorDict) -> Tensor:
        features = []
        if self.state_size:
            state: Tensor = observation["state"]
            features.append(state if self.normalizer is None else self.normalizer(state))
        for camera, encoder in zip(self.cameras, self.pictures, strict=True):
            images: Tensor = observation["images"][camera]
            lead = images.shape[:-3]
            features.append(encoder(images.reshape(-1, *images.shape[-3:])).reshape(*lead, IMAGE_FEATURES))
        return features[0] if len(features) == 1 else torch.cat(features, dim=-1)

    def update_statistics(self, observation: TensorDict) -> None:
        if self.normalizer is not None:
            self.normalizer.update(observation["state"])


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


def _parts(space: spaces.Space[Any]) -> tuple[int, dict[str, tuple[int, int]]]:
    """The size of the state (0 = none) and the height and width of each camera's pictures."""
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return space.shape[0], {}
    if not isinstance(space, spaces.Dict) or not set(space) <= {"state", "images"} or not len(space):
        raise ConfigError(
            f"observation space {space}: expected a Box of states [S], or a Dict of 'state' and 'images' (a Dict of "
            "cameras)"
        )
    state = _parts(space["state"])[0] if "state" in space.spaces else 0
    cameras = space.spaces.get("images", spaces.Dict({}))
    images: dict[str, tuple[int, int]] = {}
    for camera, box in cameras.items() if isinstance(cameras, spaces.Dict) else ():
        shape = box.shape or ()
        if len(shape) != 3 or shape[2] != 3 or min(shape[:2]) < MIN_IMAGE_SIDE:
            raise ConfigError(
                f"images of camera '{camera}' have shape {list(shape)}; expected [H, W, 3] with a height and a width "
                f"of at least {MIN_IMAGE_SIDE}"
            )
        images[camera] = shape[0], shape[1]
    if not state and not images:
        raise ConfigError(f"observation space {space} has neither a state nor images")
    return state, images
