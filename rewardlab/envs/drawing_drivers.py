"""Lets MuJoCo and SAPIEN draw without a screen, whichever environment imports them.

Both must be told what to draw with before they are imported, and an id such as `HalfCheetah-v5` or `package:Id` does
not say whether it will import them.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import Any

from rewardlab.envs.maniskill.driver import use_software_driver
from rewardlab.envs.opengl import choose_backend

CHOICES: dict[str, Callable[[], object]] = {"mujoco": choose_backend, "sapien": use_software_driver}


@contextmanager
def choose_drivers_on_import() -> Iterator[None]:
    """Let imports of MuJoCo or SAPIEN in this thread first choose what they draw with, unless the user has."""
    for name in CHOICES.keys() & sys.modules.keys():  # the user has imported it: what draws may still ask
        CHOICES[name]()
    if _finder not in sys.meta_path:
        # It stays: if it were removed while another thread imports, that thread would skip one of the finders.
        sys.meta_path.insert(0, _finder)
    _finder.depth += 1
    try:
        yield
    finally:
        _finder.depth -= 1


class _ChooseFirst(threading.local, MetaPathFinder):
    """Finds no module, but is asked before those that do."""

    depth = 0  # number of choose_drivers_on_import that this thread is in

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if self.depth and fullname in CHOICES:
            CHOICES[fullname]()


_finder = _ChooseFirst()
