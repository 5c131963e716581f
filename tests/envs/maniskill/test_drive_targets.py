"""Drive targets from actions, on controllers with the attributes of ManiSkill's (which need not be installed)."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rewardlab.envs.maniskill.drive_targets import JointControl, MimicControl
from rewardlab.envs.maniskill.rotations import multiply, quaternion_of_angles, relative_pose, rotate

QUARTER_TURN = np.array([np.sqrt(0.5), 0, 0, np.sqrt(0.5)], np.float32)  # about z


class Joint:
    target: float

    def set_drive_target(self, target: float) -> None:
        self.target = target


def controller(joints: int, **settings: Any) -> Any:
    """Joints at 0.1, 0.2, ... and actions in [-1, 1] that mean [-0.5, 0.5]."""
    qpos = np.arange(1, joints + 1, dtype=np.float32) / 10
    return SimpleNamespace(
        config=SimpleNamespace(use_delta=False, use_target=False, **settings),
        articulation=SimpleNamespace(_objs=[SimpleNamespace(qpos=qpos)]),
        joints=[SimpleNamespace(_objs=[Joint()]) for _ in range(joints)],
        active_joint_indices=torch.arange(joints),
        action_space_low=torch.full((joints,), -0.5),
        action_space_high=torch.full((joints,), 0.5),
        _normalize_action=True,
        _target_qpos=torch.from_numpy(qpos)[None].clone(),
    )


def targets(controller: Any) -> list[float]:
    return [joint._objs[0].target for joint in controller.joints]


def test_joint_positions_are_clipped_and_scaled() -> None:
    made = controller(2)
    JointControl(made).set_action(np.array([3, -0.5], np.float32))
    assert targets(made) == pytest.approx([0.5, -0.25])


def test_changes_add_to_the_position_or_to_the_last_target() -> None:
    action = np.array([1, -1], np.float32)
    made = controller(2)
    made.config.use_delta = True
    control = JointControl(made)
    for _ in range(2):
        control.set_action(action)
    assert targets(made) == pytest.approx([0.6, -0.3])
    made.config.use_target = True
    for _ in range(2):
        control.set_action(action)
    assert targets(made) == pytest.approx([1.6, -1.3])
    assert made._target_qpos[0].tolist() == pytest.approx([1.6, -1.3])


def test_fingers_follow_the_one_that_is_controlled() -> None:
    made = controller(2)
    made.control_joint_indices = made.mimic_control_joint_indices = torch.tensor([0])
    made.mimic_joint_indices = torch.tensor([1])
    made._multiplier, made._offset = torch.tensor([2.0]), torch.tensor([0.1])
    made.action_space_low, made.action_space_high = torch.tensor([-0.5]), torch.tensor([0.5])
    MimicControl(made).set_action(np.array([0.4], np.float32))
    assert targets(made) == pytest.approx([0.2, 0.5])


def test_quaternions() -> None:
    x = np.array([1, 0, 0], np.float32)
    assert quaternion_of_angles(np.array([0, 0, np.pi / 2], np.float32)) == pytest.approx(QUARTER_TURN)
    assert quaternion_of_angles(np.array([3, 0, 0], np.float32)) == pytest.approx([np.cos(1.5), np.sin(1.5), 0, 0])
    assert rotate(QUARTER_TURN, x) == pytest.approx([0, 1, 0], abs=1e-6)
    assert multiply(QUARTER_TURN, QUARTER_TURN) == pytest.approx([0, 0, 0, 1], abs=1e-6)
    position, rotation = relative_pose((x, QUARTER_TURN), (2 * x, QUARTER_TURN))
    assert position == pytest.approx([0, -1, 0], abs=1e-6)
    assert rotation == pytest.approx([1, 0, 0, 0], abs=1e-6)
