"""Environments that return something else than their spaces and Gymnasium's interface promise."""

import random
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from fuzzing import Case, Target, nasty
from gymnasium import spaces
from valid_files import SMALL_RUN

ID = "FuzzedEnvironment-v0"
SPACES = {
    "box": spaces.Box(-1, 1, (3,), np.float32),
    "picture": spaces.Box(0, 255, (16, 16, 3), np.uint8),
    "dict": spaces.Dict({"state": spaces.Box(-1, 1, (3,), np.float32)}),
    "discrete": spaces.Discrete(5),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32))),
}


class FuzzedEnvironment(gymnasium.Env[Any, Any]):
    """Does what Gymnasium asks for until the step `at`; from then on, one of its results is something else."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, seed: int, render_mode: str | None = None) -> None:
        rng = random.Random(seed)
        self.render_mode = render_mode
        self.observation_space = SPACES[rng.choice(list(SPACES))]
        self.action_space = rng.choice((spaces.Discrete(2), spaces.Box(-1, 1, (2,), np.float32)))
        self.at = rng.choice((0, 1, 2, 4))
        self.part = rng.choice(("observation", "reward", "terminated", "truncated", "info", "result", "picture"))
        self.value = rng.choice((*(_others(rng)), nasty(rng)))
        self.steps = 0

    def _results(self, *rest: Any) -> Any:
        names = ("observation", "reward", "terminated", "truncated", "info")
        good = (self.observation_space.sample(), *rest)
        if self.steps < self.at:
            return good
        if self.part == "result":
            return self.value
        wanted = names if len(good) == 5 else ("observation", "info")
        return tuple(self.value if name == self.part else each for name, each in zip(wanted, good, strict=True))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self._results({})

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self._results(0.0, self.steps >= 4, False, {"success": self.steps >= 4})

    def render(self) -> Any:
        return self.value if self.part == "picture" else np.zeros((16, 16, 3), np.uint8)


def _others(rng: random.Random) -> list[Any]:
    shapes = ((), (1,), (4,), (16, 16), (16, 16, 3))
    arrays = [np.zeros(shape, dtype) for shape in shapes for dtype in ("f4", "u1", "O")]
    dictionaries = [{"success": value} for value in (None, [], {}, np.zeros(3), True)]
    tuples = [(np.zeros(3), 0.0, False, {}), (np.zeros(3), {}), [np.zeros(3), 0.0, False, False, {}], (1, 2, 3, 4, 5)]
    return [rng.choice(arrays), rng.choice(dictionaries), rng.choice(tuples), {"state": np.zeros(4)}, {"final_obs": 3}]


def _prepare(valid: Path) -> None:
    if ID not in gymnasium.registry:
        gymnasium.register(ID, FuzzedEnvironment)


def _draw(rng: random.Random, valid: Path, work: Path) -> Case:
    env = [f"env.train.id={ID}", f"env.train.options.seed={rng.randrange(10**9)}"]
    small = [item for item in SMALL_RUN if "experiment_name" not in item]
    if rng.random() < 0.3:
        env += ["env.train.obs_mode=state+images", "env.train.image_size=[3,16,16]", "actor.model.kind=cnn"]
    if rng.random() < 0.5:
        collect = ["collect", "tabletop_pickcube", "--policy", "random", "--episodes", "2", "--out", "out"]
        return Case([*collect, *small, *env])
    return Case(["run", "tabletop_ppo_mlp", *small, *env, "runner.logger.log_path=out"])


TARGET = Target("environments", _prepare, _draw)
