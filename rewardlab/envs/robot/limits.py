"""Turns actions into commands that stay within limits: nothing else is ever sent to a robot.

The limits hold for the command: its position is in the workspace box and at most a step from the measured one, and its
orientation at most `rotation` from the target's and a `rotation_step` from the measured one. A robot that is outside of
the box (or turned further) by more than a step, where no such command exists, is an error for a person to mend.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rewardlab.envs.robot.poses import turn_between, turned
from rewardlab.envs.robot.protocol import Command, Floats, RobotError, RobotState

AXES = ("x", "y", "z", "roll", "pitch", "yaw", "gripper")
ROUNDING = 1e-6  # metres or radians


@dataclass(frozen=True)
class Limits:
    """In the base frame of the robot."""

    low: Floats  # [3], metres
    high: Floats
    step: float  # metres from the measured position to the commanded one
    orientation: Floats  # [4], quaternion
    rotation: float  # largest turn away from it, in radians
    rotation_step: float  # radians from the measured orientation to the commanded one

    def command(self, state: RobotState, motion: Floats, gripper: float | None = None) -> Command:
        """Return the command that moves a robot by `motion` [6] (metres and rotation vector), as far as is allowed."""
        self.check_state(state)
        if motion.shape != (6,) or not np.isfinite(motion).all():
            raise RobotError(f"a motion of {motion.tolist()} was asked for; expected 6 finite numbers")
        here = state.pose[:3]
        position = self._allowed_position(here, np.clip(here + motion[:3], self.low, self.high))
        wanted = turned(state.pose[3:], _shortened(motion[3:], self.rotation_step))
        away = turn_between(self.orientation, wanted)
        rotation = turned(self.orientation, _shortened(away, self.rotation))
        rotation = turned(state.pose[3:], _shortened(turn_between(state.pose[3:], rotation), self.rotation_step))
        return Command(np.concatenate((position, rotation)), None if gripper is None else float(np.clip(gripper, 0, 1)))

    def _allowed_position(self, here: Floats, wanted: Floats) -> Floats:
        """Return the position nearest to `wanted` (in the box) on the way there that is within a step of `here`.

        An arm overshoots: `here` may be outside of the box. The way then leads from the nearest point of the box.
        """
        inside = np.clip(here, self.low, self.high)
        way, offset = wanted - inside, inside - here
        # The share of the way, from `inside`, at which the distance from `here` is a step: a quadratic equation.
        a, b, c = way @ way, offset @ way, offset @ offset - self.step**2
        if a + 2 * b + c <= 0 or a == 0:
            return wanted
        share = (np.sqrt(np.maximum(b * b - a * c, 0.0)) - b) / a
        return inside + np.clip(share, 0.0, 1.0) * way

    def check_state(self, state: RobotState) -> None:
        """Raise if a robot is so far outside that no allowed command exists."""
        here = state.pose[:3]
        outside = float(np.linalg.norm(here - np.clip(here, self.low, self.high)))
        if outside > self.step:
            raise RobotError(
                f"the robot is {outside * 100:.1f} cm outside of its workspace box: found {_shown(here)}, expected "
                f"{_shown(self.low)} to {_shown(self.high)} (env.train.options.limits, around target_ee_pose). Move it "
                "there by hand, or correct the box"
            )
        turn = float(np.linalg.norm(turn_between(self.orientation, state.pose[3:])))
        if turn - self.rotation > self.rotation_step:
            raise RobotError(
                f"the robot's tool is turned {turn:.2f} rad away from that of target_ee_pose; expected at most "
                f"{self.rotation:.2f} (env.train.options.limits.rotation). Turn it by hand, or correct the pose"
            )

    def check_command(self, state: RobotState, command: Command) -> None:
        """Raise if a command is not within the limits: the last gate before the robot."""
        pose = command.pose
        if pose.shape != (7,) or not np.isfinite(pose).all():
            raise RobotError(f"a command of {pose.tolist()} was not sent; expected 7 finite numbers")
        if (pose[:3] < self.low - ROUNDING).any() or (pose[:3] > self.high + ROUNDING).any():
            raise RobotError(f"a command to {_shown(pose[:3])} was not sent: it is outside of the workspace box")
        if np.linalg.norm(pose[:3] - state.pose[:3]) > self.step + ROUNDING:
            raise RobotError(f"a command to {_shown(pose[:3])} was not sent: it is more than a step away")
        if np.linalg.norm(turn_between(self.orientation, pose[3:])) > self.rotation + self.rotation_step + ROUNDING:
            raise RobotError("a command was not sent: it turns the tool too far")
        if np.linalg.norm(turn_between(state.pose[3:], pose[3:])) > self.rotation_step + ROUNDING:
            raise RobotError("a command was not sent: it turns the tool by more than a step")


@dataclass(frozen=True)
class ActionScale:
    """What the numbers of an action mean: a share, from -1 to 1, of a step along each of these axes."""

    axes: tuple[str, ...]
    step: float
    rotation_step: float

    def motion(self, action: Floats) -> tuple[Floats, float | None]:
        """Return the motion [6] and the gripper (0 closed, 1 open; None if it is not an axis)."""
        motion, gripper = np.zeros(6), None
        for axis, share in zip(self.axes, action, strict=True):
            if axis == "gripper":
                gripper = float(share + 1) / 2
            else:
                motion[AXES.index(axis)] = share * (self.step if axis in "xyz" else self.rotation_step)
        return motion, gripper

    def action(self, state: RobotState, command: Command) -> Floats:
        """Return the action that a command amounts to, from where the robot was: the inverse of `motion`."""
        moved = (command.pose[:3] - state.pose[:3]) / self.step
        turn = turn_between(state.pose[3:], command.pose[3:]) / self.rotation_step
        gripper = state.gripper if command.gripper is None else command.gripper
        shares = dict(zip(AXES, [*moved, *turn, 2 * gripper - 1], strict=True))
        return np.clip([shares[axis] for axis in self.axes], -1, 1)


def read_action(action: object, count: int) -> Floats:
    """Return an action as numbers in [-1, 1]; anything but `count` finite numbers is an error."""
    try:
        given = np.asarray(action)
        values = given.astype(np.float64) if given.dtype.kind in "fiub" else np.zeros(0)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.shape != (count,) or not np.isfinite(values).all():
        raise RobotError(f"an action of {str(action)[:100]} was not sent to the robot; expected {count} finite numbers")
    return np.clip(values, -1, 1)


def _shortened(vector: Floats, longest: float) -> Floats:
    length = float(np.linalg.norm(vector))
    return vector if length <= longest else vector * (longest / length)


def _shown(point: Sequence[float] | Floats) -> str:
    return "[" + ", ".join(f"{value:.3f}" for value in point) + "]"
