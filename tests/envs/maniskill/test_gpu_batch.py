"""ManiSkill's own batch, as on a GPU: here a batch of one on the CPU, through the same code."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from rewardlab.config.schema import EnvConfig
from rewardlab.envs import make_vec_env
from rewardlab.envs.maniskill.gpu_batch import make_gpu_batch
from rewardlab.envs.maniskill.options import read_options
from rewardlab.envs.tensor_batch import TensorBatchEnv
from rewardlab.errors import ConfigError

PICK, CAMERA, SIZE = "maniskill/PickCube-v1", "base_camera", (32, 32)


@pytest.fixture(scope="module")
def env(simulator_installed: None) -> Iterator[TensorBatchEnv]:
    cfg = EnvConfig(id=PICK, image_size=(3, *SIZE), max_episode_steps=3, obs_mode="state+images")
    made = make_gpu_batch(cfg, read_options(PICK, {}), physics="physx_cpu")
    yield made
    made.close()


def rollout(env: TensorBatchEnv, seed: int) -> list[torch.Tensor]:
    start, _ = env.reset(seed=seed)
    actions = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (5, 1, 4)).astype(np.float32))
    return [start["state"], *(env.step(action)[0]["state"] for action in actions)]


def test_seeds_decide_the_starts_and_the_episodes_after_them(env: TensorBatchEnv) -> None:
    one, same, other = rollout(env, 3), rollout(env, 3), rollout(env, 4)
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not torch.equal(one[0], other[0])
    assert not torch.equal(one[0], one[3])  # the first observation of the second episode


def test_observations_are_tensors_with_pictures_and_last_frames(env: TensorBatchEnv) -> None:
    observation, infos = env.reset(seed=0)
    assert observation["images"][CAMERA].shape == (1, *SIZE, 3)
    assert observation["images"][CAMERA].dtype == torch.uint8
    assert not infos["success"].any()
    env.keep_last_frames("test", {SIZE: [CAMERA], (16, 16): [CAMERA]})
    for _ in range(3):
        observation, reward, _, truncated, infos = env.step(torch.zeros(1, 4))
    assert truncated.all()
    assert reward.shape == (1,)
    last = env.render_cameras([CAMERA], SIZE, final=True)[CAMERA]
    assert np.array_equal(last, infos["final_obs"]["images"][CAMERA].numpy())
    assert not np.array_equal(last, observation["images"][CAMERA].numpy())
    assert env.render_cameras([CAMERA], (16, 16), final=True)[CAMERA].shape == (1, 16, 16, 3)


def test_what_a_batch_cannot_do_is_refused(simulator_installed: None) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    gpu = {"sim_backend": "gpu"}
    with pytest.raises(ConfigError, match="sim_backend: gpu needs a CUDA GPU, and torch finds none"):
        make_vec_env(PICK, options=gpu)
    with pytest.raises(ConfigError, match="stepping is fast, which is for the CPU"):
        make_vec_env(PICK, options={**gpu, "stepping": "fast"})
    with pytest.raises(ConfigError, match="visuals is cheap, which is for the CPU"):
        make_vec_env(PICK, options={**gpu, "visuals": "cheap"})
    with pytest.raises(ConfigError, match="is one batch on the GPU; found 2"):
        make_vec_env(PICK, options=gpu, processes=2)
