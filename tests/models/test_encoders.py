"""The layers that policies, critics and reward models share."""

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict

from rewardlab.models.encoders import ObservationNetwork, ObservationNorm, make_encoder, mlp

PICTURE = spaces.Box(0, 255, (32, 48, 3), np.uint8)
SPACE = spaces.Dict({"state": spaces.Box(-1, 1, (3,)), "images": spaces.Dict({"hand": PICTURE})})
SHAPES = {"images.hand": (32, 48, 3), "state": (3,)}


def test_weights_keep_the_names_under_which_checkpoints_have_them() -> None:
    encoder = make_encoder(SPACE, "cnn", normalize_states=True)
    layers = ["pictures.0.convolutions.0", "pictures.0.convolutions.2", "pictures.0.project.0", "pictures.0.project.1"]
    names = [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    assert list(encoder.state_dict()) == [*names, "normalizer.mean", "normalizer.variance", "normalizer.count"]
    network = ObservationNetwork(SHAPES, (8,), outputs=1)
    layers = ["convolutions.0.0", "convolutions.0.2", "convolutions.0.4", "perceptron.0", "perceptron.2"]
    assert list(network.state_dict()) == [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    norm = ObservationNorm(SHAPES, pixels=True)
    assert norm.state_dict()["statistics.0.mean"].shape == (32, 48, 3)
    assert norm.state_dict()["statistics.1.mean"].shape == (3,)


def test_floats_in_0_to_1_are_the_same_pictures_as_uint8_for_policies_and_reward_models() -> None:
    pixels = torch.randint(0, 256, (2, 32, 48, 3), dtype=torch.uint8)
    state = torch.randn(2, 3)
    encoder = make_encoder(SPACE, "cnn", normalize_states=False)
    norm, network = ObservationNorm(SHAPES, vectors=False), ObservationNetwork(SHAPES, (8,))
    seen, judged = [], []
    for pictures in (pixels, pixels.float() / 255):
        seen.append(encoder(TensorDict({"state": state, "images": {"hand": pictures}}, [2])))
        judged.append(network(norm({"state": state, "images.hand": pictures})))
    assert torch.equal(*seen)
    assert torch.equal(*judged)


def test_the_last_layer_alone_may_have_no_bias() -> None:
    layers = mlp([3, 4, 5, 2], "tanh", last_bias=False)
    assert [type(layer).__name__ for layer in layers] == ["Linear", "Tanh", "Linear", "Tanh", "Linear"]
    assert [layer.bias is None for layer in layers if isinstance(layer, torch.nn.Linear)] == [False, False, True]
