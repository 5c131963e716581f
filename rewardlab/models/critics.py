"""An ensemble of critics. Each layer holds the weights of all of them in one tensor, so that a forward pass is one
batched product per layer instead of a Python loop."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from rewardlab.config.schema import PolicyModelConfig, SACConfig
from rewardlab.models.encoders import ObservationEncoder, make_activation, seeded_weights
from rewardlab.models.policy_networks import ActionRange, SquashedGaussianActor


class EnsembleLinear(nn.Module):
    """K linear layers: [K, B, in] to [K, B, out], initialised as nn.Linear is."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class EnsembleLayerNorm(nn.Module):
    def __init__(self, members: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(members, 1, size))
        self.bias = nn.Parameter(torch.zeros(members, 1, size))

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:]) * self.weight + self.bias


class EnsembleCritics(nn.Module):
    """Q(features [B, F], action [B, A]) of K critics: [K, B]. Actions are in the environment's units."""

    def __init__(self, encoder: ObservationEncoder, action_range: ActionRange, layers: nn.Module, members: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.action_range = action_range
        self.layers = layers
        self.members = members

    def forward(self, features: Tensor, action: Tensor) -> Tensor:
        inputs = torch.cat([features, self.action_range.to_unit(action)], dim=-1)
        return self.layers(inputs.expand(self.members, *inputs.shape)).squeeze(-1)


def make_critics(actor: SquashedGaussianActor, config: PolicyModelConfig, sac: SACConfig, seed: int) -> EnsembleCritics:
    """Build critics on the features of the actor's encoder, which the critics' loss trains."""
    layers: list[nn.Module] = []
    inputs = actor.encoder.size + actor.action_range.middle.numel()
    with seeded_weights(seed):
        for size in config.hidden_sizes:
            layers.append(EnsembleLinear(sac.num_critics, inputs, size))
            if sac.critic_layer_norm:
                layers.append(EnsembleLayerNorm(sac.num_critics, size))
            layers.append(make_activation(config.activation))
            inputs = size
        layers.append(EnsembleLinear(sac.num_critics, inputs, 1))
    return EnsembleCritics(actor.encoder, actor.action_range, nn.Sequential(*layers), sac.num_critics)
