"""Keeps the control rate, and measures how well."""

import time
from collections import deque
from collections.abc import Callable

import numpy as np

KEPT = 10_000  # periods


class ControlRate:
    """Ticks at a fixed rate. One that is missed by less than a period comes at once, and the next ones in time again.

    After a longer pause, a tick comes a period after it was asked for: what was just sent needs that time to happen.
    """

    def __init__(
        self,
        hz: float,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.hz = hz
        self.period = 1 / hz
        self.periods: deque[float] = deque(maxlen=KEPT)  # seconds between ticks, newest last
        self._clock, self._sleep = clock, sleep
        self._next = 0.0
        self._last: float | None = None

    def begin(self) -> None:
        """Begin a row of ticks now; what was before it is no period."""
        self._next = self._clock() + self.period
        self._last = None

    def wait(self) -> None:
        """Wait for the next tick."""
        now = self._clock()
        if now - self._next > self.period:
            self._next = now + self.period
        if (rest := self._next - now) > 0:
            self._sleep(rest)
        now = self._clock()
        if self._last is not None:
            self.periods.append(now - self._last)
        self._last = now
        self._next += self.period
        if self._next < now:
            self._next = now + self.period

    def figures(self) -> dict[str, float]:
        """Return the rate that was reached, and the period that 99 % of the periods are below."""
        if not self.periods:
            return {}
        periods = np.array(self.periods)
        p50, p99 = np.quantile(periods, (0.5, 0.99)).tolist()
        return {"hz": float(1 / periods.mean()), "p50": p50, "p99": p99}
