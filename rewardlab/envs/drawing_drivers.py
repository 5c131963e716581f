"""Lets MuJoCo and SAPIEN draw without a screen, whichever environment imports them.

Both must be told what to draw with before they are imported, and an id such as `HalfCheetah-v5` or `package:Id` does
not say whether it will import them.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import Any

from rewardlab.envs.maniskill.driver import use_software_driver
from rewardlab.envs.opengl import choose_backend

CHOICES: dict[str, Callable[[], object]] = {"mujoco": choose_backend, "sapien": use_software_driver}


@contextmanager
def choose_drivers_on_import() -> Iterator[None]:
    """While this lasts, an import of MuJoCo or SAPIEN first chooses what it draws with, unless the user has."""
    for name in CHOICES.keys() & sys.modules.keys():  # the user has imported it: what draws may still ask
        CHOICES[name]()
    finder = _ChooseFirst()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _ChooseFirst(MetaPathFinder):
    """Finds no module, but is asked before those that do."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname in CHOICES:
            CHOICES[fullname]()
