"""Agents of other libraries learn from the model's reward, and the documentation's code runs."""

import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from env_toys import EPISODES, LampEnv, LampReader
from gymnasium.vector import SyncVectorEnv
from reward_toys import make_frames, small_resnet
from stable_baselines3 import PPO
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from rewardlab.config import load_config
from rewardlab.envs.wrappers import RewardModelVectorWrapper, RewardModelWrapper

DOCUMENT = (Path(__file__).parents[2] / "docs" / "other_libraries.md").read_text()
BLOCKS = re.findall(r"```python\n(.+?)```", DOCUMENT, re.DOTALL)


@pytest.mark.parametrize(("mode", "expected"), [("per_step", (1, 2, 6)), ("terminal", (0, 0, 6))])
def test_stable_baselines3_learns_from_the_models_reward(mode: str, expected: tuple[float, ...]) -> None:
    model = LampReader()

    def make() -> gymnasium.Env:
        lamp = LampEnv(kind="cameras")
        wrapped = RewardModelWrapper(lamp, model, reward_mode=mode, reward_type="continuous", success_reward=10.0)
        return Monitor(wrapped)

    agent = PPO("MlpPolicy", DummyVecEnv([make, make]), n_steps=60, batch_size=40, n_epochs=2, seed=0, device="cpu")
    before = [weight.clone() for weight in agent.policy.parameters()]
    agent.learn(240)
    assert any((a != b).any() for a, b in zip(before, agent.policy.parameters(), strict=True))
    np.testing.assert_allclose(agent.rollout_buffer.rewards, np.tile(expected, 20)[:, None].repeat(2, 1), rtol=1e-6)
    assert agent.ep_info_buffer is not None
    assert {episode["r"] for episode in agent.ep_info_buffer} == {sum(expected)}  # the environment's own are 6


def test_a_cleanrl_loop_gets_the_models_reward() -> None:
    """CleanRL's PPO loop in short: a buffer over steps and environments, dones that go with the next observation."""
    envs = RewardModelVectorWrapper(
        SyncVectorEnv([lambda i=i: LampEnv(i) for i in (0, 1)]), LampReader(), reward_type="continuous"
    )
    num_steps = 12
    rewards, dones = torch.zeros((num_steps, envs.num_envs)), torch.zeros((num_steps, envs.num_envs))
    envs.reset(seed=1)
    next_done = torch.zeros(envs.num_envs)
    for step in range(num_steps):
        dones[step] = next_done
        _, reward, terminations, truncations, _ = envs.step(envs.action_space.sample())
        rewards[step] = torch.tensor(reward).view(-1)
        next_done = torch.tensor(np.logical_or(terminations, truncations)).float()
    for env, episode in enumerate(EPISODES):
        cycle = [*(brightness / 100 for brightness in episode), 0.0]  # Gymnasium's default: the next step resets
        assert rewards[:, env].tolist() == pytest.approx((cycle * num_steps)[:num_steps])
        assert dones[:, env].tolist() == ([*[0.0] * len(episode), 1.0] * num_steps)[:num_steps]
    assert not rewards[dones.bool()].any()


@pytest.mark.parametrize("block", BLOCKS, ids=["stable_baselines3", "cleanrl"])
def test_the_documentations_code_runs(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = small_resnet()
    model.network.train()(make_frames(16)[0])
    model.network.eval()
    (path,) = set(re.findall(r'"(runs/.+?)"', block))
    model.save(tmp_path / path)
    assert "500_000" in block
    variables: dict[str, object] = {}
    exec(block.replace("500_000", "1_000"), variables)
    if "agent" in variables:
        assert variables["agent"].ep_info_buffer  # type: ignore[attr-defined] # of the monitor
        rewards = variables["agent"].rollout_buffer.rewards  # type: ignore[attr-defined]
        assert ((rewards > 0) & (rewards < 1)).mean() > 0.9  # SB3 adds the value of a state that was cut off
    else:
        assert "episodic_return=" in capsys.readouterr().out


def test_the_documentations_checkpoint_is_what_its_command_writes() -> None:
    (override,) = re.findall(r"rewardlab train-reward .+ (runner\.logger\.log_path=\S+)", DOCUMENT)
    logger = load_config("reward_training", [override], check_files=False).runner.logger
    best = Path(logger.log_path, logger.experiment_name) / "checkpoints" / "best_model"
    assert all(f'"{best}"' in block for block in BLOCKS)
