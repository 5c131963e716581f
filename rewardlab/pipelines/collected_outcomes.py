"""How the episodes of a collection ended: shown beside its progress, and on the page of the run."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from rewardlab.envs.step_results import final_info, success_of
from rewardlab.keys import DISCARD, MESSAGE
from rewardlab.live_state import DISCARDED, FAILURE, REDO, SUCCESS, LiveState
from rewardlab.observations import to_numpy

COLOURS = {SUCCESS: "green", FAILURE: "red", REDO: "yellow", DISCARDED: "yellow"}


class Outcomes:
    """Counts episodes of robots: a success is one that was ended by success, not one that touched it in between.

    Where a person asked for the episode to be done again, it is a redo; where the robot or a camera failed, it is
    discarded. Neither is kept.
    """

    def __init__(self, live: LiveState | None, say: Callable[[str], None]) -> None:
        self.counts: Counter[str] = Counter({SUCCESS: 0, FAILURE: 0})
        self._live, self._say = live, say

    def add_step(self, terminated: Any, truncated: Any, infos: Any) -> None:
        """Count the episodes that a step of all environments ended, and pass on what it says."""
        terminated, ended = to_numpy(terminated), to_numpy(terminated) | to_numpy(truncated)
        for message in _messages(infos):
            self._tell(message)
        if not ended.any():
            return
        last = final_info(infos)
        succeeded = success_of(last, len(ended)) & terminated
        discarded = to_numpy(last.get(DISCARD, np.zeros(len(ended), bool))).astype(bool)
        messages = last.get(MESSAGE, [""] * len(ended))
        for env in np.flatnonzero(ended):
            if messages[env]:
                self._tell(str(messages[env]))
            if discarded[env]:
                self._count(DISCARDED if messages[env] else REDO)
            else:
                self._count(SUCCESS if succeeded[env] else FAILURE)

    def in_colour(self) -> str:
        """Return the counts as markup for a progress line."""
        return "  ".join(f"[{COLOURS[name]}]{count} {name}[/]" for name, count in self.counts.items())

    def _count(self, outcome: str) -> None:
        self.counts[outcome] += 1
        if self._live is not None:
            self._live.count_episode(outcome)

    def _tell(self, message: str) -> None:
        self._say(message)  # robots tell the page themselves


def _messages(infos: Any) -> list[str]:
    known = to_numpy(infos.get(f"_{MESSAGE}", True))
    return [str(text) for text in np.where(known, infos.get(MESSAGE, ""), "").reshape(-1) if text]
