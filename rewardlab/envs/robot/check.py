"""Checks of a robot before it is used: does it answer, see, keep its rate, move as it is told, and stop?

Nothing moves before somebody has agreed. Motions are of millimetres, from where the robot is, and go through limits of
that size: what is asked for is further, so that a limit which does not hold is seen.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from rewardlab.config.schema import EnvConfig
from rewardlab.envs.cameras import Frame
from rewardlab.envs.robot.env import RobotEnv
from rewardlab.envs.robot.limits import AXES, Limits
from rewardlab.envs.robot.make import check_cameras, make_robot_env
from rewardlab.envs.robot.options import RobotOptions
from rewardlab.envs.robot.people import GamePad
from rewardlab.envs.robot.poses import angles_of, turn_between
from rewardlab.envs.robot.protocol import Floats, RobotError, RobotState
from rewardlab.envs.robot.rate import ControlRate
from rewardlab.errors import ConfigError

Verdict = Literal["passed", "failed", "skipped"]

CALLS = 50  # of which the latency is measured
CAMERA_SECONDS = 2.0
HOLD_SECONDS = 3.0
MOTION, TURN = 0.005, 0.04  # metres and radians that the robot is moved
MOTION_ERROR, TURN_ERROR = 0.002, 0.02  # between the commanded and the measured motion
ASKED = 1.0  # metres or radians: far beyond the limits of these motions
SETTLE_SECONDS = 3.0  # in which it must arrive
QUIET_SECONDS, QUIET = 0.3, 0.001  # a robot has arrived when its pose changes by less in so long
STILL = 0.001  # metres in which a stopped robot stays
SLOWEST = 0.95  # of the control rate


@dataclass(frozen=True)
class Check:
    """What was checked, and what was found."""

    name: str
    verdict: Verdict
    found: str
    frame: Frame | None = None  # of a camera


def check_robot(cfg: EnvConfig, options: RobotOptions, may_move: Callable[[str], bool]) -> Iterator[Check]:
    """Check the first robot of the options, and yield what is found as it is found.

    `may_move` is asked, with words for a person, before the robot is moved.
    """
    env = make_robot_env(cfg, replace(options, input=()))
    try:
        check_cameras(cfg, env.camera_names)
        yield from _without_motion(env, options)
        yield from _with_motion(env, options, may_move)
    except _Ended as end:
        yield end.check
    finally:
        env.close()


class _Ended(Exception):
    """A check failed without which the others make no sense."""

    def __init__(self, check: Check) -> None:
        super().__init__(check.found)
        self.check = check


def _without_motion(env: RobotEnv, options: RobotOptions) -> Iterator[Check]:
    robot, period = env.robot, 1 / options.control_hz
    try:
        state = robot.observe()
    except RobotError as error:
        raise _Ended(Check("reachable", "failed", str(error))) from error
    yield Check("reachable", "passed", f"{robot.name} answers")
    yield _tried("spaces", lambda: _spaces(env))
    yield Check("state", "passed", _shown(state))
    yield _tried("latency", lambda: _latency(env, period))
    for name in env.camera_names:
        yield _camera(env, name)
    if "gamepad" in options.input:
        yield _tried("game pad", _game_pad)
    yield _in_box(env, state)


def _with_motion(env: RobotEnv, options: RobotOptions, may_move: Callable[[str], bool]) -> Iterator[Check]:
    names = [f"motion, {axis}" for axis in options.axes if axis != "gripper"]
    rest = ("control rate", *names, "stop", "watchdog")
    try:
        env.limits.check_state(env.robot.observe())
    except RobotError:
        yield from (Check(name, "skipped", "no command is allowed outside of the box") for name in rest)
        return
    yield _tried("control rate", lambda: _hold_still(env, options.control_hz))
    question = (
        f"Move {env.robot.name} by {MOTION * 1000:g} mm to and fro along {', '.join(options.axes)}? Keep a hand at its "
        "emergency stop."
    )
    if not may_move(question):
        yield from (Check(name, "skipped", "nobody agreed to motions") for name in rest[1:])
        return
    for axis in options.axes:
        if axis != "gripper":  # it may hold something
            yield _tried(f"motion, {axis}", partial(_motion, env, axis, options.control_hz))
    yield _tried("stop", lambda: _stop(env))
    yield _tried("watchdog", lambda: _watchdog(env, options.watchdog_seconds))


def _tried(name: str, check: Callable[[], tuple[bool, str]]) -> Check:
    """Return what a check found; an error of the robot is a check that failed."""
    try:
        passed, found = check()
    except (RobotError, ConfigError) as error:
        return Check(name, "failed", str(error))
    return Check(name, "passed" if passed else "failed", found)


def _spaces(env: RobotEnv) -> tuple[bool, str]:
    gripper = env.robot.spaces().gripper
    words = f"{'a' if gripper else 'no'} gripper; actions move {', '.join(env.scale.axes)}"
    return gripper or "gripper" not in env.scale.axes, words


def _shown(state: RobotState) -> str:
    angles = angles_of(state.pose[3:])
    parts = {
        "position (m)": state.pose[:3],
        "roll, pitch, yaw (rad)": angles,
        "quaternion": state.pose[3:],
        "velocity (m/s, rad/s)": state.velocity,
        "force (N)": state.force,
        "torque (N m)": state.torque,
        "gripper (0 closed, 1 open)": np.array([state.gripper]),
    }
    return "\n".join(f"{name}: {' '.join(f'{value + 0.0:.3f}' for value in part)}" for name, part in parts.items())


def _latency(env: RobotEnv, period: float) -> tuple[bool, str]:
    """Pass where the state can be read within half a period: commands and pictures need the other half."""
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        env.robot.observe()
        times.append(time.perf_counter() - start)
    median, p99 = np.quantile(times, (0.5, 0.99)).tolist()
    words = f"reading the state takes {median * 1e3:.1f} ms (median), {p99 * 1e3:.1f} ms (p99)"
    return median <= period / 2, f"{words}; the control period is {period * 1e3:.0f} ms"


def _camera(env: RobotEnv, name: str) -> Check:
    """Read a camera as often as it goes; the rate is that of different pictures."""
    camera, title = env.cameras[name], f"camera, {name}"
    start, different, reads = time.perf_counter(), 0, 0
    try:
        frame = camera.read()
        while time.perf_counter() - start < CAMERA_SECONDS:
            newest = camera.read()
            different += not np.array_equal(newest, frame)
            reads, frame = reads + 1, newest
    except RobotError as error:
        return Check(title, "failed", str(error))
    rate = different / (time.perf_counter() - start)
    height, width = frame.shape[:2]
    found = f"{width}x{height}, {rate:.0f} different pictures a second, mean brightness {frame.mean():.0f} of 255"
    return Check(title, "passed" if different or not reads else "failed", found, frame)


def _game_pad() -> tuple[bool, str]:
    GamePad().close()
    return True, "found"


def _in_box(env: RobotEnv, state: RobotState) -> Check:
    limits, here = env.limits, state.pose[:3]
    gap = here - env.target[:3]
    turn = float(np.linalg.norm(turn_between(env.target[3:], state.pose[3:])))
    words = f"{np.linalg.norm(gap) * 100:.1f} cm and {turn:.2f} rad from target_ee_pose; box {_box(limits)}"
    try:
        limits.check_state(state)
    except RobotError as error:
        return Check("in the box", "failed", f"{words}. {error}")
    return Check("in the box", "passed", words)


def _box(limits: Limits) -> str:
    return ", ".join(
        f"{a} {low:.3f} to {high:.3f}" for a, low, high in zip("xyz", limits.low, limits.high, strict=True)
    )


def _hold_still(env: RobotEnv, hz: float) -> tuple[bool, str]:
    """Send the pose that the robot has, at the control rate, with the pictures that a policy would see."""
    rate, start = ControlRate(hz), env.robot.observe()
    rate.begin()
    state, drift = start, 0.0
    for _ in range(max(2, round(HOLD_SECONDS * hz))):
        _send(env, env.limits, state, np.concatenate((start.pose[:3] - state.pose[:3], np.zeros(3))))
        rate.wait()
        state = env.robot.observe()
        for camera in env.cameras.values():
            camera.read()
        drift = max(drift, float(np.linalg.norm(state.pose[:3] - start.pose[:3])))
    _idle(env)
    figures = rate.figures()
    words = f"{figures['hz']:.2f} Hz of {hz:g}, period {figures['p50'] * 1e3:.1f} ms (median)"
    found = f"{words}, {figures['p99'] * 1e3:.1f} ms (p99); it moved by {drift * 1000:.1f} mm meanwhile"
    return figures["hz"] >= SLOWEST * hz, found


def _motion(env: RobotEnv, axis: str, hz: float) -> tuple[bool, str]:
    """Ask for a long motion within limits of millimetres: the robot goes to their end, and no further."""
    start, number = env.robot.observe(), AXES.index(axis)
    is_turn = number >= 3
    size, error, unit, scale = (TURN, TURN_ERROR, "rad", 1) if is_turn else (MOTION, MOTION_ERROR, "mm", 1000)
    sign = 1 if is_turn or env.limits.high[number] - start.pose[number] > size else -1  # up rather than down
    if is_turn:
        small = replace(env.limits, orientation=start.pose[3:], rotation=size)
    else:
        reach = [size if other == number else 0.0 for other in range(3)]
        low, high = (
            np.clip(start.pose[:3] + way * np.array(reach), env.limits.low, env.limits.high) for way in (-1, 1)
        )
        small = replace(env.limits, low=low, high=high)
    ask = np.zeros(6)
    ask[number] = sign * ASKED
    commanded, measured = _follow(env, small, ask, start, hz)
    _follow(env, env.limits, np.zeros(6), start, hz)  # back
    _idle(env)
    told, moved = _moved(start, commanded)[number], _moved(start, measured)
    others = np.delete(moved[3:] if is_turn else moved[:3], number % 3)
    across = float(np.linalg.norm(others))
    words = (
        f"asked for {sign * ASKED * scale:+g} {unit}, sent {told * scale:+.2f}, measured {moved[number] * scale:+.2f}"
    )
    passed = abs(told - sign * size) <= 0.05 * size and abs(moved[number] - told) <= error and across <= error
    return passed, f"{words}, across {across * scale:.2f} {unit}"


def _follow(env: RobotEnv, limits: Limits, ask: Floats, start: RobotState, hz: float) -> tuple[Floats, Floats]:
    """Ask for a motion, and to stay at the start in all else, until the robot no longer moves.

    Returns the last commanded pose and the measured one.
    """
    rate, state, commanded = ControlRate(hz), start, start.pose
    rate.begin()
    ticks = max(3, round(QUIET_SECONDS * hz))
    places = [state.pose]
    end = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < end:
        back = -_moved(start, state.pose)
        commanded = _send(env, limits, state, np.where(ask != 0, ask, back))
        rate.wait()
        state = env.robot.observe()
        places.append(state.pose)
        if len(places) > 2 * ticks and np.ptp(places[-ticks:], axis=0).max() < QUIET:
            break
    return commanded, state.pose


def _moved(start: RobotState, pose: Floats) -> Floats:
    return np.concatenate((pose[:3] - start.pose[:3], turn_between(start.pose[3:], pose[3:])))


def _send(env: RobotEnv, limits: Limits, state: RobotState, motion: Floats) -> Floats:
    command = limits.command(state, motion)
    limits.check_command(state, command)
    env.limits.check_command(state, command)
    if env.watchdog is not None:
        env.watchdog.moving()
    return env.robot.act(command).pose


def _idle(env: RobotEnv) -> None:
    if env.watchdog is not None:
        env.watchdog.idle()


def _stop(env: RobotEnv) -> tuple[bool, str]:
    """Stop the robot in the middle of a motion."""
    start = env.robot.observe()
    up = np.array([0, 0, MOTION if env.limits.high[2] - start.pose[2] > MOTION else -MOTION, 0, 0, 0])
    _send(env, env.limits, start, up)
    began = time.perf_counter()
    env.robot.stop()
    took = time.perf_counter() - began
    _idle(env)
    time.sleep(0.5)
    there = env.robot.observe().pose[:3]
    time.sleep(0.5)
    drift = float(np.linalg.norm(env.robot.observe().pose[:3] - there))
    moved = float(np.linalg.norm(there - start.pose[:3]))
    found = f"took {took * 1e3:.0f} ms, {moved * 1000:.1f} of {MOTION * 1000:g} mm after the start of a motion"
    return drift <= STILL, f"{found}; then it moved by {drift * 1000:.2f} mm in half a second"


def _watchdog(env: RobotEnv, seconds: float | None) -> tuple[bool, str]:
    """Send a command and then nothing, as a program that hangs."""
    if env.watchdog is None or seconds is None:
        return True, "off (env.train.options.watchdog_seconds is null)"
    env.watchdog.wait_for_stop(0)
    _send(env, env.limits, env.robot.observe(), np.zeros(6))
    began = time.perf_counter()
    stopped = env.watchdog.wait_for_stop(seconds + 10)
    if not stopped:
        return False, f"it did not stop the robot in {seconds + 10:g} s of silence; see its message above"
    return True, f"stopped the robot after {time.perf_counter() - began:.1f} s of silence"


def verdict_of(checks: list[Check]) -> Verdict:
    """Return failed if one failed, else skipped if one was skipped."""
    verdicts = [check.verdict for check in checks]
    return "failed" if "failed" in verdicts else "skipped" if "skipped" in verdicts else "passed"
