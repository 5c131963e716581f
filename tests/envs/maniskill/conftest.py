"""Fixtures of the tests that need ManiSkill and a Vulkan driver; they are skipped where one is missing."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rewardlab.envs import make_vec_env
from rewardlab.envs.copies import CopiesVectorEnv
from rewardlab.envs.maniskill.driver import use_software_driver

MakeEnv = Callable[..., CopiesVectorEnv]


@pytest.fixture(scope="session")
def simulator_installed() -> None:
    use_software_driver()
    pytest.importorskip("mani_skill", reason="ManiSkill is not installed: make maniskill")
    sapien = pytest.importorskip("sapien")
    try:
        sapien.render.RenderSystem(sapien.Device("cpu"))
    except RuntimeError as error:
        pytest.skip(f"no Vulkan driver that SAPIEN can use ({error}): make maniskill")


@pytest.fixture
def make(simulator_installed: None) -> Iterator[MakeEnv]:
    made: list[Any] = []

    def make_env(task: str, **settings: Any) -> CopiesVectorEnv:
        made.append(make_vec_env(f"maniskill/{task}", **{"processes": 1, **settings}))
        return made[-1]

    yield make_env
    for env in made:
        env.close()
