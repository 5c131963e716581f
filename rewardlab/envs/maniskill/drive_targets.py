"""Turns actions into drive targets of a robot's joints in NumPy, with the same numbers as ManiSkill's controllers.

Operations and their order are those of ManiSkill, in float32, so PhysX receives the same bits. What a controller keeps
from step to step is kept in ManiSkill's controller: actions may add to it, some tasks read it, and steps of both kinds
can be mixed.
"""

from typing import Any, Protocol

import numpy as np
import torch

from rewardlab.envs.maniskill.rotations import (
    Floats,
    Pose,
    multiply,
    nonnegative,
    quaternion_of_angles,
    relative_pose,
)


class PartControl(Protocol):
    """Controls some joints of a robot by a part of the action."""

    def set_action(self, action: Floats) -> None:
        """Set the drive targets of this part's joints."""


def part_controls(agent: Any) -> list[tuple[slice, PartControl]]:
    """Return the controls of a robot in its present control mode, each with its part of the action."""
    controller = agent.controller
    parts = getattr(controller, "action_mapping", None)
    if parts is None:
        return [(slice(None), _find_control(controller))]
    return [(slice(*parts[name]), _find_control(part)) for name, part in controller.controllers.items()]


def _find_control(controller: Any) -> PartControl:
    from mani_skill.agents.controllers import pd_ee_pose, pd_joint_pos

    frame = getattr(controller.config, "frame", "")
    known: dict[Any, tuple[type[JointControl], bool]] = {
        pd_joint_pos.PDJointPosController: (JointControl, True),
        pd_joint_pos.PDJointPosMimicController: (MimicControl, True),
        pd_ee_pose.PDEEPosController: (PositionControl, frame == "root_translation"),
        pd_ee_pose.PDEEPoseController: (PoseControl, frame == "root_translation:root_aligned_body_rotation"),
    }
    kind, usable = known.get(type(controller), (None, False))
    if kind is None or not usable or controller.config.interpolate:
        return TorchControl(controller)
    return kind(controller)


class TorchControl:
    """ManiSkill's own controller, for those that have no equal in NumPy."""

    def __init__(self, controller: Any) -> None:
        self._controller = controller

    def set_action(self, action: Floats) -> None:
        self._controller.set_action(torch.from_numpy(action)[None])


class JointControl:
    """Joint positions, or changes of them (`PDJointPosController`)."""

    def __init__(self, controller: Any) -> None:
        self._controller, self._settings = controller, controller.config
        self._robot = controller.articulation._objs[0]
        self._joints = [joint._objs[0] for joint in controller.joints]
        self._indices = controller.active_joint_indices.numpy()
        self._normalizes = controller._normalize_action
        if self._normalizes:
            low, high = controller.action_space_low.numpy(), controller.action_space_high.numpy()
            self._middle, self._half_range = 0.5 * (high + low), 0.5 * (high - low)

    def set_action(self, action: Floats) -> None:
        start = self._robot.qpos[self._indices]
        target = self._find_target(self._scale(action), start)
        controller = self._controller
        controller._step, controller._start_qpos = 0, torch.from_numpy(start[None])
        controller._target_qpos = torch.from_numpy(target[None])
        for joint, position in zip(self._joints, target.tolist(), strict=True):
            joint.set_drive_target(position)

    def _scale(self, action: Floats) -> Floats:
        if not self._normalizes:
            return action
        scaled: Floats = self._middle + self._half_range * np.minimum(np.maximum(action, -1), 1)  # np.clip is slow
        return scaled

    def _find_target(self, action: Floats, start: Floats) -> Floats:
        if not self._settings.use_delta:
            return action.copy()
        return action + (self._last_target() if self._settings.use_target else start)

    def _last_target(self) -> Floats:
        last: Floats = self._controller._target_qpos[0].numpy()
        return last


class MimicControl(JointControl):
    """Joint positions where some joints follow others, such as the fingers of a gripper."""

    def __init__(self, controller: Any) -> None:
        super().__init__(controller)
        self._leaders = controller.control_joint_indices.numpy().reshape(-1)
        self._followers = controller.mimic_joint_indices.numpy().reshape(-1)
        self._followed = controller.mimic_control_joint_indices.numpy().reshape(-1)
        self._factor, self._offset = controller._multiplier.numpy(), controller._offset.numpy()

    def _find_target(self, action: Floats, start: Floats) -> Floats:
        target = self._last_target().copy()
        if self._settings.use_delta:
            action = action + (target if self._settings.use_target else start)[self._leaders]
        target[self._leaders] = action
        target[self._followers] = target[self._followed] * self._factor + self._offset
        return target


class PositionControl(JointControl):
    """The position of the gripper, or changes of it, by inverse kinematics (`PDEEPosController`)."""

    def __init__(self, controller: Any) -> None:
        import sapien
        from mani_skill.utils.structs import Pose as BatchedPose

        super().__init__(controller)
        kinematics = controller.kinematics
        self._solve = kinematics.pmodel.compute_inverse_kinematics
        self._solver_indices = kinematics.pmodel_active_joint_indices.numpy()
        self._solved_indices = kinematics.pmodel_controlled_joint_indices.numpy()
        self._solver_mask = kinematics.qmask.numpy()
        self._end_link_index = kinematics.end_link_idx
        self._end_link, self._root_link = controller.ee_link._objs[0], controller.root_link._objs[0]
        self._sapien_pose, self._batched_pose = sapien.Pose, BatchedPose

    def _find_target(self, action: Floats, start: Floats) -> Floats:
        position, rotation = self._find_pose(action)
        raw_pose = np.concatenate((position, rotation))[None]
        self._controller._target_pose = self._batched_pose(torch.from_numpy(raw_pose))
        joints, solved, _ = self._solve(
            self._end_link_index,
            self._sapien_pose(position, rotation),
            initial_qpos=self._robot.qpos[self._solver_indices],
            active_qmask=self._solver_mask,
            max_iterations=100,
        )
        return joints[self._solved_indices].astype(np.float32) if solved else start

    def _find_pose(self, action: Floats) -> Pose:
        """Return the pose of the gripper, in the frame of the robot's root, that an action asks for."""
        if not self._settings.use_delta:
            return action, np.array([1, 0, 0, 0], np.float32)
        position, rotation = self._last_pose()
        return action + position, nonnegative(rotation)

    def _last_pose(self) -> Pose:
        """Return the pose that a change is added to: the last target or the present pose."""
        if self._settings.use_target:
            last = self._controller._target_pose.raw_pose[0].numpy()
            return last[:3], last[3:]
        root, end = self._root_link.entity_pose, self._end_link.entity_pose
        return relative_pose((root.p, root.q), (end.p, end.q))


class PoseControl(PositionControl):
    """The position and rotation of the gripper, or changes of them (`PDEEPoseController`)."""

    def _scale(self, action: Floats) -> Floats:
        if not self._normalizes:
            return action
        angles = action[3:]
        size = torch.linalg.norm(torch.from_numpy(angles[None]), axis=1).numpy()
        if size[0] > 1:
            angles = angles * (1 / size)
        scaled = super()._scale(action)
        scaled[3:] = angles * self._settings.rot_lower
        return scaled

    def _find_pose(self, action: Floats) -> Pose:
        turn = quaternion_of_angles(action[3:])
        if not self._settings.use_delta:
            return action[:3], turn
        position, rotation = self._last_pose()
        return action[:3] + position, nonnegative(multiply(turn, rotation))
