"""The physics of the simulated robot: an arm that follows a target pose, and the built-in table below it.

A thread advances them in real time, or faster. While nothing moves, it sleeps.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rewardlab.envs.robot.poses import pose_of_angles, turn_between, turned
from rewardlab.envs.robot.protocol import Floats
from rewardlab.envs.tabletop.looks import Looks, Randomize, draw_looks
from rewardlab.envs.tabletop.tasks import PegInsertion, advance
from rewardlab.envs.tabletop.world import MAX_FINGER_MOTION, MAX_MOTION, MAX_OPENING, MOTION_LAG, World
from rewardlab.registry import Registry

SIM_TASKS: Registry[type[PegInsertion]] = Registry("task of the simulated robot")
SIM_TASKS.register("peg_insertion")(PegInsertion)

TICKS_PER_SECOND = 20  # of the built-in table
TARGET = pose_of_angles((0.5, 0.0, 0.1, -3.14, 0.0, 0.0))  # of the tool when the peg is seated, in the robot's frame
HOME = np.concatenate(([0.5, 0.0, 0.25], TARGET[3:]))
PEG_BELOW_GRIP = 0.020  # metres
GAIN = 0.45  # share of the distance to the target that is commanded in a tick; more would overshoot
TURN_GAIN = 0.3
LARGEST_TURN = 0.15  # rad a tick
STIFFNESS = 1000.0  # N/m
MOTION_NOISE = 0.0001  # metres a tick
FORCE_LAG = 0.5
TIP = np.array([0.0, 0.0, -0.065])  # of the peg, from the grip
QUIET_TICKS = 3 * TICKS_PER_SECOND  # without a command, after which nothing moves any more
MOST_TICKS = 50  # that are caught up at once, where the machine was too slow
HOMING_TICKS = 10 * TICKS_PER_SECOND


@dataclass(frozen=True)
class Measured:
    """What the robot's sensors would say after a tick."""

    pose: Floats  # [7], in the robot's frame
    velocity: Floats  # [6]
    force: Floats  # [3], on the tool, of what it touches
    torque: Floats
    gripper: float  # 0 closed, 1 open
    tick: int


class Bench:
    """One robot, one table. Safe to use from several threads."""

    def __init__(
        self, task: str, *, speed: float = 1.0, seed: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.task = SIM_TASKS[task]()
        self.speed = speed
        self._rng = np.random.default_rng(seed)
        self._world = self.task.start(1, self._rng, np.ones(1, np.float32))
        self._world.goal[0, :2] = 0.0
        self.looks: Looks = draw_looks(1, Randomize(), self._rng)
        seated = self._world.goal[0] + [0, 0, PEG_BELOW_GRIP]
        self._origin = (TARGET[:3] - seated).astype(np.float64)  # of the table, in the robot's frame
        self._target, self._gripper_target = HOME.copy(), 0.0
        self._rotation = HOME[3:].copy()
        self._force = np.zeros(3)
        self._put_at(HOME[:3])
        self._clock = clock
        self._changed = threading.Condition()
        self._closed = self._homing = False
        self._tick = self._quiet = self.late_ticks = 0
        self.measured = self._measure(np.zeros(3))
        self._thread = threading.Thread(target=self._run, name="physics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def move_to(self, pose: Floats) -> bool:
        """Set the pose that the arm moves to and then holds; return False while it moves home."""
        with self._changed:
            if self._homing:
                return False
            self._set_target(pose)
            return True

    def move_gripper(self, opening: float) -> None:
        """Open or close the gripper, as far as 0 (closed) to 1 (open)."""
        with self._changed:
            self._gripper_target = opening
            self._wake()

    def hold(self) -> None:
        """Stop where it is."""
        with self._changed:
            self._homing = False
            self._world.grip_velocity[:] = 0
            self._set_target(self.measured.pose)
            self._gripper_target = self.measured.gripper

    def go_home(self) -> bool:
        """Move straight up and then home, and put the peg back into the gripper; return whether it got there."""
        with self._changed:
            self._homing = True
            up = np.concatenate((self.measured.pose[:2], HOME[2:]))
            for waypoint in (up, HOME):
                self._set_target(waypoint)
                last = self._tick + HOMING_TICKS
                while self._homing and not self._is_near(waypoint) and self._tick < last and not self._closed:
                    self._changed.wait(1.0)
            arrived = self._homing and self._is_near(HOME)
            self._homing = False
            if arrived and not self._world.held[0]:
                self._put_at(self.measured.pose[:3])
                self._gripper_target = 0.0
            return arrived

    def truth(self) -> dict[str, Any]:
        """Return what only a simulation knows."""
        with self._changed:
            world = self._world
            return {
                "success": bool(self.task.success(world)[0]),
                "held": bool(world.held[0]),
                "peg": (world.object[0] + self._origin).tolist(),
                "seconds": self._tick / TICKS_PER_SECOND,
            }

    def snapshot(self) -> World:
        """Return a copy of the table, to be drawn."""
        with self._changed:
            return self._world.take(np.zeros(1, np.intp))

    def _set_target(self, pose: Floats) -> None:
        self._target = np.array(pose, np.float64)
        self._wake()

    def _wake(self) -> None:
        self._quiet = 0
        self._changed.notify_all()

    def _is_near(self, waypoint: Floats) -> bool:
        return bool(np.linalg.norm(self.measured.pose[:3] - waypoint[:3]) < 0.005)

    def _put_at(self, position: Floats) -> None:
        """Put the gripper there, with the peg in it."""
        world = self._world
        world.grip[0] = position - self._origin
        world.grip_velocity[:] = world.fall_speed[:] = 0
        world.hold_offset[0] = 0, 0, -PEG_BELOW_GRIP
        world.object[0] = world.grip[0] + world.hold_offset[0]
        world.opening[:] = 2 * world.object_half[:, 1]
        world.held[:] = True

    def _run(self) -> None:
        period = 1 / (TICKS_PER_SECOND * self.speed)
        with self._changed:
            due = self._clock() + period
            while not self._closed:
                if self._quiet >= QUIET_TICKS:
                    self._changed.wait()
                    due = self._clock() + period
                    continue
                if (rest := due - self._clock()) > 0:
                    self._changed.wait(rest)
                    continue
                self._advance()
                due += period  # from the last one, not from now: so it never drifts
                if (behind := (self._clock() - due) / period) > MOST_TICKS:
                    self.late_ticks += int(behind)
                    due += int(behind) * period
                self._changed.notify_all()

    def _advance(self) -> None:
        """Make one tick."""
        world, action = self._world, np.zeros((1, 4), np.float32)
        gap = self._target[:3] - self._origin - world.grip[0]
        action[0, :3] = np.clip(GAIN * gap / MAX_MOTION, -1, 1)
        action[0, 3] = np.clip((self._gripper_target * MAX_OPENING - world.opening[0]) / MAX_FINGER_MOTION, -1, 1)
        free = world.grip[0] + MOTION_LAG * world.grip_velocity[0] + (1 - MOTION_LAG) * MAX_MOTION * action[0, :3]
        advance(self.task, world, action, self._rng, MOTION_NOISE)
        # In static contact a tick is held back by this share of the distance to the target, which is what the spring of
        # an impedance controller pushes against.
        held_back = (world.grip[0] - free) / ((1 - MOTION_LAG) * GAIN)
        self._force = FORCE_LAG * self._force + (1 - FORCE_LAG) * STIFFNESS * held_back
        turn = TURN_GAIN * turn_between(self._rotation, self._target[3:])
        turn *= min(1.0, LARGEST_TURN / max(float(np.linalg.norm(turn)), 1e-12))
        self._rotation = turned(self._rotation, turn)
        self._tick += 1
        self._quiet += 1
        self.measured = self._measure(turn)

    def _measure(self, turn: Floats) -> Measured:
        world = self._world
        return Measured(
            np.concatenate((world.grip[0] + self._origin, self._rotation)),
            np.concatenate((world.grip_velocity[0], turn)) * TICKS_PER_SECOND,
            self._force,
            np.cross(TIP, self._force),
            float(world.opening[0] / MAX_OPENING),
            self._tick,
        )
