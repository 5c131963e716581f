"""The Gymnasium environment of a robot: everything that is the same for all robots.

A step reads people's input, turns the action into a command within the limits, sends it, waits for the next tick of
the control rate, and then measures: state and pictures are of the same moment, and the label says whether the robot is
at its target in that moment.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rewardlab.envs.cameras import Frame, Size, resized
from rewardlab.envs.closing import closed_after_errors
from rewardlab.envs.robot.cameras import CheckedCamera, read_all
from rewardlab.envs.robot.limits import AXES, ActionScale, Limits, read_action
from rewardlab.envs.robot.observation import STATE_SIZE, is_at, state_numbers
from rewardlab.envs.robot.options import ResetConfig, ToleranceConfig
from rewardlab.envs.robot.people import AllInputs
from rewardlab.envs.robot.poses import turn_between, turned
from rewardlab.envs.robot.protocol import (
    Command,
    Floats,
    Robot,
    RobotError,
    RobotInterrupted,
    RobotState,
    RobotStopped,
)
from rewardlab.envs.robot.rate import ControlRate
from rewardlab.envs.robot.robots import RobotLock
from rewardlab.envs.robot.watchdog import Watchdog
from rewardlab.errors import ConfigError
from rewardlab.live_state import FAILURE, REDO, RESUME, STOP, SUCCESS, LiveEnv, LiveState
from rewardlab.stopping import INTERRUPTIBLE

Info = dict[str, Any]
RETRY_SECONDS = 0.5
STALE_SECONDS = 0.25  # after which a robot is measured anew before a command: it may have been moved by hand
ARRIVED_TICKS = 3  # that the start must be held
RESETS = 5  # attempts to reach the start of an episode
ASIDE = 0.003  # metres beside the target from which a script moves down
SHOWN_EVERY = 0.5  # seconds between two looks at rates and counts, for the page


@dataclass
class Counts:
    """What happened since the environment was built."""

    clipped: int = 0  # commands that the limits changed
    stops: int = 0  # because of errors or people
    interventions: int = 0  # steps in which a person moved the robot


class RobotEnv(gymnasium.Env[Any, Any]):
    """One robot. Infos of a step: `success`; `hold`, the steps of success in a row; `executed_action`, what the robot
    was really told; `intervention`, whether a person moved it; `discard` at the end of an episode that is not to be
    kept; `message` where a person should read something.

    An episode ends where a person labels it, if nothing around the environment ends it before. Where a robot or camera
    fails, the robot is stopped and the episode ends, to be discarded; if it stays away longer than `patience` seconds,
    that is an error. Where a person stops the robot, the episode ends in the same way when they let it go on.

    `interrupt` may be called from any thread.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as in Gymnasium

    def __init__(
        self,
        connect: Callable[[], Robot],
        *,
        target: Floats,
        limits: Limits,
        scale: ActionScale,
        cameras: Mapping[str, CheckedCamera],
        rate: ControlRate,
        tolerance: ToleranceConfig,
        start: ResetConfig,
        patience: float = 10.0,
        people: AllInputs | None = None,
        watchdog: Callable[[], Watchdog] | None = None,
    ) -> None:
        self.robot = connect()
        self.target, self.limits, self.scale = target, limits, scale
        self.cameras, self._rate, self._tolerance, self._start = dict(cameras), rate, tolerance, start
        self._patience, self.people = patience, AllInputs(()) if people is None else people
        self.counts = Counts()
        self.camera_names = tuple(cameras)
        self.observation_space = spaces.Box(-np.inf, np.inf, (STATE_SIZE,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (len(scale.axes),), np.float32)
        self._frames: dict[str, Frame] = {}
        self._state: RobotState | None = None
        self._hold = self._episode = 0
        self._measured_at = 0.0  # seconds of time.monotonic
        self._gripper: float | None = None  # as last sent in this episode
        self._held, self._ending = threading.Event(), threading.Event()
        self._checked_spaces = False
        self._lock: RobotLock | None = RobotLock(self.robot.name)
        with closed_after_errors(self._lock.close):
            self.watchdog = None if watchdog is None else watchdog()
        self._live: LiveEnv | None = None
        self._shown = 0.0
        INTERRUPTIBLE.add(self)

    def attach(self, live: LiveState) -> LiveEnv:
        """Show the robot on the page of a run, where people can label, move and stop it."""
        self._live = live.env(self.robot.name, controls=True)
        self._live.on_stop(self.robot.stop)
        self._live.show(axes=" ".join(self.scale.axes))
        self.people.add(self._live)
        return self._live

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Floats, Info]:
        """Move to a new start: up, then aside, then down, in steps like those of an action."""
        super().reset(seed=seed)
        self._state = None  # steps are refused if this fails
        self._gripper = None
        spread = np.asarray(self._start.spread)
        place = self.target[:3] + np.array([0, 0, self._start.height]) + self.np_random.uniform(-spread, spread)
        place = np.clip(place, self.limits.low, self.limits.high)
        every = self._start.joints_every
        joints = every is not None and self._episode % every == 0
        self._episode += 1
        for attempt in range(1, RESETS + 1):
            try:
                self._check_spaces()
                self._show(phase="moving to the start")
                self._move_to_start(place, joints)
                self._measure()
                break
            except RobotError as error:
                self._recover(error)
                if attempt == RESETS:
                    self._state = None
                    why = f"{error}. The robot is stopped after {RESETS} attempts to begin an episode"
                    raise RobotError(why) from error
        self._hold = int(self._is_at_target())
        self._rate.begin()
        self._show(phase="acting", hold=self._hold)
        return self._observe(), self._info()

    def step(self, action: Any) -> tuple[Floats, float, bool, bool, Info]:
        values = read_action(action, len(self.scale.axes))
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        ended = self._read_people()
        motion = self.people.motion()
        if motion is not None:
            values = self._of_person(motion)
        try:
            if ended == STOP:  # the action was chosen before; a person may have moved the robot since
                self._hold_still()
                self._measure()
                return self._observe(), 0.0, False, True, self._info(discard=True, message="a person stopped the robot")
            if time.monotonic() - self._measured_at > STALE_SECONDS:
                self._read_state()
            before = self._current
            sent = self._send(*self.scale.motion(values))
            self._rate.wait()
            self._measure()
        except RobotError as error:
            self._recover(error)
            return self._observe(), 0.0, False, True, self._info(discard=True, executed=values, message=str(error))
        executed = self.scale.action(before, sent)
        success = (self._is_at_target() or ended == SUCCESS) and ended != FAILURE
        self._hold = self._hold + 1 if success else 0
        by_person = motion is not None
        self.counts.interventions += by_person
        self._show(phase="moved by a person" if by_person else "acting", hold=self._hold)
        info = self._info(success=success, executed=executed, intervention=by_person, discard=ended == REDO)
        return self._observe(), float(success), ended in (SUCCESS, FAILURE), ended == REDO, info

    def render_cameras(self, cameras: Sequence[str], image_size: Size = None) -> dict[str, Frame]:
        """Return the pictures that were taken with the present observation."""
        return {camera: resized(self._frames[camera], image_size) for camera in cameras}

    def close(self) -> None:
        lock, self._lock = self._lock, None
        if lock is None:
            return
        self._ending.set()
        stopped = False
        with ExitStack() as each:  # the last one first, whatever happens to the others
            each.callback(lock.close)
            each.callback(self.people.close)
            each.callback(self.robot.close)
            for camera in self.cameras.values():
                each.callback(camera.close)
            if (watchdog := self.watchdog) is not None:
                each.callback(lambda: watchdog.close(stopped=stopped))
            with suppress(RobotError):  # it may be gone: its impedance target holds it, and the watchdog tries again
                self.robot.stop()
                stopped = True

    def interrupt(self) -> None:
        """Stop the robot now, and end the step or reset that goes on; afterwards the environment can be closed only."""
        if self._lock is None or self._ending.is_set():
            return
        self._ending.set()
        with suppress(RobotError):  # `close` tries again
            self.robot.stop()

    def scripted_action(self) -> Floats:
        """Return what a script would do now: move above the target, then down to it."""
        gap = self.target[:3] - self._current.pose[:3]
        turn = turn_between(self._current.pose[3:], self.target[3:])
        if np.linalg.norm(gap[:2]) > ASIDE:
            gap[2] = max(0.0, gap[2] + self._start.lift)  # not down yet; up, if it is lower than that
        motion = Command(self._current.pose + np.concatenate((gap, np.zeros(4))))
        motion.pose[3:] = turned(self._current.pose[3:], turn)
        return self.scale.action(self._current, motion)

    def figures(self) -> dict[str, float]:
        """Return the control rate that was reached, and counts since the environment was built."""
        return {**self._rate.figures(), **asdict(self.counts)}

    @property
    def _current(self) -> RobotState:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        return self._state

    def _send(self, motion: Floats, gripper: float | None) -> Command:
        """Send a motion from the last measured state, within the limits; nothing while a person has stopped it."""
        self._check_not_ending()
        if self._is_stopped():
            return Command(self._current.pose.copy())  # pressed since people's input was read: the next step holds
        command = self.limits.command(self._current, motion, gripper)
        self.limits.check_command(self._current, command)
        asked = self._current.pose[:3] + motion[:3]
        self.counts.clipped += bool(np.abs(command.pose[:3] - asked).max() > 1e-6)
        if self.watchdog is not None:
            self.watchdog.moving()  # before: this process may die in the middle of the call
        self._gripper = command.gripper if command.gripper is not None else self._gripper
        sent = self.robot.act(command)
        if self._is_stopped():  # in the meantime: the command may have come after the stop
            self._stop()
        self._check_not_ending()
        return sent

    def _is_stopped(self) -> bool:
        """Return whether a person has stopped it, in whatever thread."""
        return self._held.is_set() or (self._live is not None and self._live.stopped)

    def _read_state(self) -> None:
        self._state = self.robot.observe()
        self._measured_at = time.monotonic()

    def _measure(self) -> None:
        """Read the state and the pictures; both or neither."""
        began, state = time.monotonic(), self.robot.observe()
        frames = read_all(self.cameras)
        self._state, self._frames, self._measured_at = state, frames, began
        if self._live is not None:
            self._live.show_frames(frames)

    def _observe(self) -> Floats:
        return state_numbers(self._current, self.target)

    def _is_at_target(self) -> bool:
        return is_at(self._current.pose, self.target, self._tolerance)

    def _info(
        self,
        *,
        success: bool | None = None,
        executed: Floats | None = None,
        intervention: bool = False,
        discard: bool = False,
        message: str = "",
    ) -> Info:
        none = np.zeros(len(self.scale.axes))
        return {
            "success": self._is_at_target() if success is None else success,
            "hold": self._hold,
            "executed_action": (none if executed is None else executed).astype(np.float32),
            "intervention": intervention,
            "discard": discard,
            "message": message,
        }

    def _of_person(self, motion: Floats) -> Floats:
        """Return a person's motion as an action: along the axes that actions have."""
        values = dict(zip(AXES, np.clip(motion, -1, 1).tolist(), strict=True))
        if not values["gripper"]:  # no key of the gripper is held: it stays as it is
            gripper = self._current.gripper if self._gripper is None else self._gripper
            values["gripper"] = 2 * gripper - 1
        return np.array([values[axis] for axis in self.scale.axes])

    def _read_people(self) -> str | None:
        """Return the label that a person gave, or STOP, if any."""
        events = self.people.take_events()
        if STOP in events:
            self._held.set()  # until they let it go on, whatever happens before
        if self._held.is_set():
            return STOP
        labels = [event for event in events if event in (SUCCESS, FAILURE, REDO)]
        return labels[-1] if labels else None

    def _hold_still(self) -> None:
        """Stop the robot, and wait until a person lets it go on."""
        self._say("stopped by a person")
        self._show(phase="stopped")
        if self._live is not None:
            self._live.stopped = True
        self._stop()
        while self._held.is_set():
            self._check_not_ending()
            self._ending.wait(0.05)
            for event in self.people.take_events():
                if event == STOP:
                    self._held.set()
                elif event == RESUME:
                    self._held.clear()
        if self._live is not None:
            self._live.stopped = False
        self._say("a person let it go on")
        self._rate.begin()

    def _stop(self) -> None:
        """Stop the robot. If it cannot be stopped, its watchdog goes on to watch, and will try."""
        self.counts.stops += 1
        self.robot.stop()
        self._idle()

    def _say(self, words: str, *, alarm: bool = False) -> None:
        if self._live is not None:
            self._live.say(f"{self.robot.name}: {words}", alarm=alarm)

    def _show(self, **values: float | str) -> None:
        """Show on the page what the robot does, and from time to time its rates and counts."""
        if self._live is not None:
            if time.monotonic() - self._shown > SHOWN_EVERY:
                self._shown = time.monotonic()
                values |= self.figures()
            self._live.show(**values)

    def _recover(self, error: RobotError) -> None:
        """Stop the robot after an error, and wait until it and its cameras answer again; raise if they do not."""
        stopped = False
        self._show(phase="waiting for it to answer")
        self._say(str(error), alarm=True)
        with suppress(RobotError):
            self._stop()
            stopped = True
        self._state = None  # steps are refused if this raises
        if isinstance(error, (RobotStopped, RobotInterrupted)):
            raise error
        end = time.monotonic() + self._patience
        while True:
            self._check_not_ending()
            try:
                self.robot.reset()
                if not stopped:  # else it would go on to where it was last told to, once its errors are cleared
                    self.robot.stop()
                    self._idle()
                    stopped = True
                self._measure()
                self.limits.check_state(self._current)
                return
            except RobotError as again:
                self._state = None
                if isinstance(again, RobotStopped):
                    raise
                if time.monotonic() >= end:
                    state = "is stopped" if stopped else "could not be told to stop: it holds its last target"
                    raise RobotError(
                        f"{again}. The robot {state}. (It was waited for {self._patience:g} s: "
                        "env.train.options.patience_seconds)"
                    ) from error
            self._ending.wait(min(RETRY_SECONDS, max(0.0, end - time.monotonic())))

    def _check_not_ending(self) -> None:
        if self._ending.is_set():
            raise RobotInterrupted(f"{self.robot.name}: it was stopped, as the program is ending")

    def _check_spaces(self) -> None:
        if not self._checked_spaces and "gripper" in self.scale.axes and not self.robot.spaces().gripper:
            raise ConfigError(f"env.train.options.axes: found gripper, but {self.robot.name} says that it has none")
        self._checked_spaces = True

    def _move_to_start(self, place: Floats, joints: bool) -> None:
        """Move up out of what the tool may be in, home if it is time for that, then above the start, then to it."""
        self._check_not_ending()
        if self._read_people() == STOP:
            self._hold_still()
            self._show(phase="moving to the start")
        self._idle()  # the robot's own motions take longer than the watchdog waits
        self.robot.reset()
        self._read_state()
        here = np.clip(self._current.pose[:3], self.limits.low, self.limits.high)
        height = min(max(here[2], self.target[2] + self._start.lift), self.limits.high[2])
        # From outside of the box, where no command is allowed, home is the way back.
        if not joints or np.linalg.norm(here - self._current.pose[:3]) <= self.limits.step:
            self._go(np.array([*here[:2], height]))
        if joints:
            if self._read_people() == STOP or self._is_stopped():
                self._hold_still()
            self._idle()
            self.robot.reset(joints=True)
            self._read_state()
        self._go(np.array([*place[:2], max(height, place[2])]))
        self._go(place)
        self._idle()

    def _idle(self) -> None:
        if self.watchdog is not None:
            self.watchdog.idle()

    def _go(self, place: Floats) -> None:
        """Move to a position with the orientation of the target, in commands like those of a policy."""
        end = time.monotonic() + self._start.seconds
        arrived = 0
        self._rate.begin()
        while arrived < ARRIVED_TICKS:
            if self._read_people() == STOP:  # labels pressed between episodes are of no episode
                self._hold_still()
                self._read_state()
                end = time.monotonic() + self._start.seconds
            state = self._current
            turn = turn_between(state.pose[3:], self.target[3:])
            self._send(np.concatenate((place - state.pose[:3], turn)), None)
            self._rate.wait()
            self._read_state()
            left = place - self._current.pose[:3], turn_between(self._current.pose[3:], self.target[3:])
            near = np.linalg.norm(left[0]) <= self._start.tolerance
            near &= np.linalg.norm(left[1]) <= self._tolerance.rotation
            arrived = arrived + 1 if near else 0
            if time.monotonic() > end:
                raise RobotError(
                    f"{self.robot.name}: it does not reach {np.round(place, 3).tolist()} in {self._start.seconds:g} s; "
                    f"it is at {np.round(self._current.pose[:3], 3).tolist()}, turned by "
                    f"{np.linalg.norm(left[1]):.2f} rad from the target. Is something in its way? "
                    "(env.train.options.reset)"
                )
