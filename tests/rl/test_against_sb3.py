"""One PPO update on the same rollout and the same weights gives the weights that Stable-Baselines3 gets."""

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from rewardlab.config.schema import OptimConfig, PolicyModelConfig, PPOConfig
from rewardlab.models.policy_networks import make_actor_critic
from rewardlab.rl import PPO

sb3 = pytest.importorskip("stable_baselines3")


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_an_update_is_that_of_sb3(env_id: str) -> None:
    from stable_baselines3.common.env_util import make_vec_env

    env = make_vec_env(env_id, n_envs=4, seed=0)
    theirs = sb3.PPO("MlpPolicy", env, n_steps=32, batch_size=128, gamma=0.9, ent_coef=0.01, seed=0)
    model = PolicyModelConfig(hidden_sizes=(64, 64), normalize_states=False)
    network = make_actor_critic(env.observation_space, env.action_space, model, seed=0)
    config = PPOConfig(update_epochs=10, entropy_coef=0.01)
    optim = OptimConfig(lr=3e-4, schedule="constant", max_grad_norm=0.5)
    ours = PPO(network, config, optim, gamma=0.9, batch_size=128, seed=0)
    policy = theirs.policy
    layers = [
        *zip([network.actor[0], network.actor[2]], policy.mlp_extractor.policy_net[::2], strict=True),
        *zip([network.critic[0], network.critic[2]], policy.mlp_extractor.value_net[::2], strict=True),
        (network.actor[4], policy.action_net),
        (network.critic[4], policy.value_net),
    ]
    for mine, other in layers:
        assert torch.allclose(mine.weight.norm(), other.weight.norm())  # initialised alike
        mine.load_state_dict(other.state_dict())
    train = theirs.train

    def train_both() -> None:
        ours.learn(rollout_of(theirs))
        train()
        for mine, other in layers:
            assert torch.allclose(mine.weight, other.weight, atol=2e-5)
            assert torch.allclose(mine.bias, other.bias, atol=2e-5)

    theirs.train = train_both
    theirs.learn(3 * 128)
    assert ours.updates == 3 * config.update_epochs


def rollout_of(learner: Any) -> TensorDict:
    buffer = learner.rollout_buffer
    columns = {name: torch.as_tensor(getattr(buffer, name).copy()) for name in ("actions", "log_probs", "values")}
    discrete = columns["actions"].shape[-1] == 1 and learner.action_space.dtype == np.int64
    with torch.no_grad():
        last = learner.policy.predict_values(torch.as_tensor(learner._last_obs)).squeeze(-1)
    starts = np.concatenate([buffer.episode_starts[1:], learner._last_episode_starts[None]])
    rollout = {
        "observation": {"state": torch.as_tensor(buffer.observations.copy())},
        "action": columns["actions"].squeeze(-1).long() if discrete else columns["actions"],
        "log_prob": columns["log_probs"],
        "value": columns["values"],
        "next_value": torch.cat([columns["values"][1:], last[None]]),
        "reward": torch.as_tensor(buffer.rewards.copy()),
        "terminated": torch.as_tensor(starts > 0),
        "truncated": torch.zeros(starts.shape, dtype=torch.bool),
    }
    return TensorDict(rollout, batch_size=starts.shape)
