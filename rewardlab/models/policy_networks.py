"""Networks that act: an actor-critic for PPO, a squashed Gaussian for SAC, an epsilon-greedy Q-network for DQN.

Each has `act(observation, generator, explore)`, which returns at least `action` for a batch of observations; without
`explore` it is the best known action. All randomness of acting comes from that generator, which is on the network's
device, so that this process and a Ray worker act alike. Networks with continuous actions give them in the
environment's own units.
"""

import math
from typing import Any, TypeAlias

import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn
from torch.nn import functional

from rewardlab.config.schema import PolicyModelConfig
from rewardlab.errors import ConfigError
from rewardlab.models.encoders import Activation, ObservationEncoder, init_orthogonal, make_encoder, mlp, seeded_weights

Space: TypeAlias = spaces.Space[Any]

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_LOG_STD_RANGE = (-20.0, 2.0)  # of SAC's actor, as in the authors' code


class GaussianHead(nn.Module):
    """A diagonal Gaussian whose standard deviation is one learned vector.

    Actions are not squashed: they are clipped where the environment is stepped, and probabilities are those of the
    actions before clipping, as in CleanRL and SB3.
    """

    def __init__(self, actions: int, init_std: float) -> None:
        super().__init__()
        self.outputs = actions
        self.log_std = nn.Parameter(torch.full((actions,), math.log(init_std)))

    def sample(self, mean: Tensor, generator: torch.Generator) -> Tensor:
        return mean + self.log_std.exp() * torch.randn(mean.shape, generator=generator, device=mean.device)

    def best(self, mean: Tensor) -> Tensor:
        return mean

    def log_prob(self, mean: Tensor, action: Tensor) -> Tensor:
        deviations = (action - mean) * torch.exp(-self.log_std)
        return (-0.5 * deviations**2 - self.log_std - _LOG_SQRT_2PI).sum(-1)

    def entropy(self, mean: Tensor) -> Tensor:
        return (self.log_std + 0.5 + _LOG_SQRT_2PI).sum().expand(mean.shape[:-1])


class CategoricalHead(nn.Module):
    """One of several actions, int64."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.outputs = actions

    def sample(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        # The Gumbel trick, by hand: torch.multinomial would draw other numbers than earlier versions did.
        noise = torch.empty(logits.shape, device=logits.device).exponential_(generator=generator)
        return (logits - noise.log()).argmax(-1)

    def best(self, logits: Tensor) -> Tensor:
        return logits.argmax(-1)

    def log_prob(self, logits: Tensor, action: Tensor) -> Tensor:
        return logits.log_softmax(-1).gather(-1, action[..., None]).squeeze(-1)

    def entropy(self, logits: Tensor) -> Tensor:
        log_probs = logits.log_softmax(-1)
        return -(log_probs.exp() * log_probs).sum(-1)


class ActorCritic(nn.Module):
    """A policy and a value function: two MLPs on the same features."""

    def __init__(
        self, encoder: ObservationEncoder, actor: nn.Module, critic: nn.Module, head: GaussianHead | CategoricalHead
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.actor = actor
        self.critic = critic
        self.head = head

    @torch.no_grad()
    def act(self, observation: TensorDict, generator: torch.Generator, explore: bool = True) -> TensorDict:
        """Return `action`, its `log_prob` and the `value` of the observation."""
        features = self.encoder(observation)
        outputs, value = self.actor(features), self.critic(features).squeeze(-1)
        action = self.head.sample(outputs, generator) if explore else self.head.best(outputs)
        log_prob = self.head.log_prob(outputs, action)
        return TensorDict({"action": action, "log_prob": log_prob, "value": value}, batch_size=features.shape[:-1])

    def value(self, observation: TensorDict) -> Tensor:
        return self.critic(self.encoder(observation)).squeeze(-1)

    def evaluate(self, observation: TensorDict, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the log-probability of `action`, the entropy of the policy and the value, with gradients."""
        features = self.encoder(observation)
        outputs, value = self.actor(features), self.critic(features).squeeze(-1)
        return self.head.log_prob(outputs, action), self.head.entropy(outputs), value


class ActionRange(nn.Module):
    """Scales actions between their Box and [-1, 1], the range of off-policy networks."""

    middle: Tensor
    reach: Tensor

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        low, high = torch.as_tensor(space.low).double(), torch.as_tensor(space.high).double()
        self.register_buffer("middle", ((low + high) / 2).float())
        self.register_buffer("reach", ((high - low) / 2).float())

    def from_unit(self, unit: Tensor) -> Tensor:
        return self.middle + self.reach * unit

    def to_unit(self, action: Tensor) -> Tensor:
        return (action - self.middle) / self.reach


class SquashedGaussianActor(nn.Module):
    """SAC's policy: tanh of a Gaussian with mean and deviation from the network, scaled to the action space.

    The encoder belongs to the critics, whose loss trains it (as in DrQ): `sample` cuts the gradient to it.
    """

    def __init__(self, encoder: ObservationEncoder, head: nn.Module, action_range: ActionRange) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.action_range = action_range

    @torch.no_grad()
    def act(self, observation: TensorDict, generator: torch.Generator, explore: bool = True) -> TensorDict:
        features = self.encoder(observation)
        if explore:
            action, _ = self.sample(features, generator)
        else:
            mean, _ = self.head(features).chunk(2, dim=-1)
            action = self.action_range.from_unit(mean.tanh())
        return TensorDict({"action": action}, batch_size=features.shape[:-1])

    def sample(self, features: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return an action with gradients to this actor's head, and its log-probability on the scale [-1, 1]."""
        mean, log_std = self.head(features.detach()).chunk(2, dim=-1)
        log_std = log_std.clamp(*_LOG_STD_RANGE)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        raw = mean + log_std.exp() * noise
        gaussian = -0.5 * noise**2 - log_std - _LOG_SQRT_2PI
        # log(1 - tanh(x)^2) without its loss of digits at large x
        squashing = 2 * (math.log(2) - raw - functional.softplus(-2 * raw))
        return self.action_range.from_unit(raw.tanh()), (gaussian - squashing).sum(-1)


class EpsilonGreedyQ(nn.Module):
    """DQN's network: a value per action. It explores with probability `epsilon`, which is saved with the weights."""

    epsilon: Tensor

    def __init__(self, encoder: ObservationEncoder, head: nn.Module, actions: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.actions = actions
        self.register_buffer("epsilon", torch.ones(()))

    def forward(self, observation: TensorDict) -> Tensor:
        return self.head(self.encoder(observation))

    @torch.no_grad()
    def act(self, observation: TensorDict, generator: torch.Generator, explore: bool = True) -> TensorDict:
        action = self(observation).argmax(-1)
        if explore:
            random = torch.randint(self.actions, action.shape, generator=generator, device=action.device)
            explores = torch.rand(action.shape, generator=generator, device=action.device) < self.epsilon
            action = torch.where(explores, random, action)
        return TensorDict({"action": action}, batch_size=action.shape)


def make_actor_critic(obs_space: Space, action_space: Space, config: PolicyModelConfig, seed: int) -> ActorCritic:
    """Build PPO's network, initialised as in CleanRL and SB3: orthogonal, with a nearly uniform first policy."""
    head: GaussianHead | CategoricalHead
    if isinstance(action_space, spaces.Discrete):
        head = CategoricalHead(_count(action_space))
    else:
        head = GaussianHead(_dimensions(action_space, "ppo"), config.init_std)
    with seeded_weights(seed):
        encoder = make_encoder(obs_space, config.kind, config.normalize_states)
        actor, critic = (_make_head(encoder, outputs, config, "tanh") for outputs in (head.outputs, 1))
        network = ActorCritic(encoder, actor, critic, head)
        for module in network.modules():
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                init_orthogonal(module, {actor[-1]: 0.01, critic[-1]: 1.0}.get(module, 2**0.5))
    return network


def make_squashed_actor(
    obs_space: Space, action_space: Space, config: PolicyModelConfig, seed: int
) -> SquashedGaussianActor:
    """Build SAC's actor; its `encoder` is meant to be shared with the critics (`make_critics`)."""
    actions = _dimensions(action_space, "sac")
    assert isinstance(action_space, spaces.Box)
    if not action_space.is_bounded():
        raise ConfigError(f"algorithm.name: sac needs actions with finite bounds; found {action_space}. Use ppo")
    with seeded_weights(seed):
        encoder = make_encoder(obs_space, config.kind, config.normalize_states)
        head = _make_head(encoder, 2 * actions, config, "relu")
    return SquashedGaussianActor(encoder, head, ActionRange(action_space))


def make_q_network(obs_space: Space, action_space: Space, config: PolicyModelConfig, seed: int) -> EpsilonGreedyQ:
    """Build DQN's network."""
    if not isinstance(action_space, spaces.Discrete):
        raise ConfigError(f"algorithm.name: dqn needs a Discrete action space; found {action_space}. Use sac or ppo")
    actions = _count(action_space)
    with seeded_weights(seed):
        encoder = make_encoder(obs_space, config.kind, config.normalize_states)
        return EpsilonGreedyQ(encoder, _make_head(encoder, actions, config, "relu"), actions)


def _make_head(
    encoder: ObservationEncoder, outputs: int, config: PolicyModelConfig, activation: Activation
) -> nn.Sequential:
    return mlp([encoder.size, *config.hidden_sizes, outputs], config.activation or activation)


def _count(space: spaces.Discrete) -> int:
    if space.start != 0:
        raise ConfigError(f"action space {space}: expected actions counted from 0")
    return int(space.n)


def _dimensions(space: Space, algorithm: str) -> int:
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise ConfigError(f"algorithm.name: {algorithm} needs a Box of actions [A]; found {space}")
    return space.shape[0]
