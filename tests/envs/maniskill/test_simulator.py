"""What can be missing or misspelt around a ManiSkill task gets one line that says what to do."""

import sys
from typing import Any

import pytest

from rewardlab.envs import make_vec_env
from rewardlab.envs.maniskill import simulator
from rewardlab.errors import ConfigError


def test_the_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mani_skill", None)
    monkeypatch.setitem(sys.modules, "mani_skill.envs", None)
    simulator._registered_tasks.cache_clear()
    with pytest.raises(ConfigError, match=r"maniskill/PickCube-v1.*make maniskill.*rewardlab\[maniskill\]"):
        make_vec_env("maniskill/PickCube-v1", processes=1)


def test_an_unknown_task_names_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "_registered_tasks", lambda env_id: {"PickCube-v1": 0, "PushCube-v1": 0})
    with pytest.raises(ConfigError, match=r"unknown ManiSkill task 'PickCub-v1'. Did you mean 'PickCube-v1'\?"):
        simulator.find_task("maniskill/PickCub-v1")


def test_missing_files_name_the_command_that_downloads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "_registered_tasks", lambda env_id: {"TurnFaucet-v1": 0})
    monkeypatch.setattr(simulator, "_missing_assets", lambda task: ["a", "b", "c", "d", "e"])
    with pytest.raises(ConfigError, match=r"\(a, b, c and 2 more\): python -m .*download_asset TurnFaucet-v1"):
        simulator.find_task("maniskill/TurnFaucet-v1")


def test_no_vulkan_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(backend: str) -> Any:
        raise RuntimeError("vk::createInstanceUnique: ErrorIncompatibleDriver")

    monkeypatch.setattr(simulator, "find_task", lambda env_id: 0)
    monkeypatch.setattr(simulator, "_hold_renderer", fails)
    with pytest.raises(ConfigError, match=r"Vulkan driver.*ErrorIncompatibleDriver.*make maniskill.*VK_ICD_FILENAMES"):
        simulator._build("maniskill/PickCube-v1", "cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"control_mode": "pd_ee_delta"}, r"unknown control_mode of .* Did you mean 'pd_ee_delta_pos'"),
        ({"robot_uids": "pandaa"}, r"unknown robot_uids of .* Did you mean 'panda'"),
        ({"task": {"robot_noise": 1.0}}, r"unknown option task of .* robot_init_qpos_noise"),
        ({"sim_config": {"control_freq": 7}}, r"sim_freq\(100\) is not divisible by control_freq\(7\)"),
    ],
)
def test_options_that_the_task_does_not_have(make: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make("PickCube-v1", options=options)


@pytest.mark.parametrize("backend", ["sim_backend", "render_backend"])
def test_a_gpu_without_cuda(make: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match=f"options.{backend}: gpu needs a CUDA GPU"):
        make("PickCube-v1", processes=None, options={backend: "gpu"})


def test_files_that_a_robot_needs_are_not_asked_for_on_the_terminal(make: Any) -> None:
    from mani_skill.utils import assets

    if assets.is_data_source_downloaded("anymal_c"):
        pytest.skip("the files of this robot are here")
    with pytest.raises(ConfigError, match=r"AnymalC-Reach-v1' needs a file .*anymal_c.*download_asset"):
        make("AnymalC-Reach-v1")


def test_a_camera_that_does_not_exist(make: Any) -> None:
    env = make("PickCube-v1")
    env.reset(seed=0)
    with pytest.raises(ConfigError, match=r"unknown camera of 'maniskill/PickCube-v1' 'front'.*base_camera"):
        env.render_cameras(["front"], (64, 64))


def test_a_task_without_an_expert_names_those_that_have_one(make: Any) -> None:
    env = make("LiftPegUpright-v1")
    env.reset(seed=0)
    with pytest.raises(ConfigError, match="no scripted expert; those that have one: PickCube-v1, "):
        env.call("scripted_action")
    with pytest.raises(ConfigError, match="pd_ee_delta_pos or pd_ee_delta_pose; found panda with pd_joint_delta_pos"):
        make("PickCube-v1", options={"control_mode": "pd_joint_delta_pos"}).call("scripted_action")
