"""A check at start says by name which environments ignore the seed, and changes no numbers of the others."""

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rewardlab.envs import copies, make_vec_env, seed_check
from rewardlab.envs.copies import CopiesVectorEnv, child_seeds


class Start(gymnasium.Env[Any, Any]):
    """Begins at a random place ("seeded"), at a place of its own dice ("unseeded"), or always at the same ("fixed")."""

    observation_space = spaces.Dict({"state": spaces.Box(-9, 9, (2,)), "goal": spaces.Discrete(4)})
    action_space = spaces.Discrete(2)

    def __init__(self, kind: str = "seeded") -> None:
        self.kind, self.resets = kind, 0
        self.dice = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.resets += 1
        dice = {"seeded": self.np_random, "unseeded": self.dice}.get(self.kind, np.random.default_rng(0))
        return {"state": dice.normal(size=2).astype(np.float32), "goal": 1}, {"resets": self.resets}

    def step(self, action: Any) -> Any:
        state = self.np_random.normal(size=2).astype(np.float32)
        return {"state": state, "goal": 1}, 0.0, False, False, {"resets": self.resets}


class Fixed(Start):
    metadata = {"render_modes": [], "fixed_start": True}  # noqa: RUF012


gymnasium.register("test-seeds/Start-v0", Start)
gymnasium.register("test-seeds/Fixed-v0", Fixed)


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed_check, "CHECKED", set())
    monkeypatch.setattr(copies, "CHECKED", seed_check.CHECKED)


def make(kind: str = "seeded", name: str = "Start", num_envs: int = 2) -> Any:
    return make_vec_env(f"test-seeds/{name}-v0", num_envs=num_envs, options={"kind": kind}, processes=1)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("unseeded", "'test-seeds/Start-v0' ignores the seed of reset.*same seed gave two different observations"),
        ("fixed", "'test-seeds/Start-v0': copies with different seeds begin with the same observation.*fixed_start"),
    ],
)
def test_an_environment_that_ignores_the_seed_is_named_once(kind: str, words: str) -> None:
    with pytest.warns(UserWarning, match=words):
        make(kind).reset(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(kind).reset(seed=1)


def test_nothing_is_said_where_there_is_nothing_to_say() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make().reset()  # without a seed nothing can be said
        make().reset(seed=0)
        make("fixed", "Fixed").reset(seed=0)
        seed_check.CHECKED.clear()
        make("fixed", num_envs=1).reset(seed=0)


def test_the_check_changes_no_numbers_and_is_made_once() -> None:
    checked, plain = CopiesVectorEnv([Start] * 3, name="start"), CopiesVectorEnv([Start] * 3)
    for seed in (5, 6):
        found, expected = checked.reset(seed=seed)[0], plain.reset(seed=seed)[0]
        np.testing.assert_array_equal(found["state"], expected["state"])
        for _ in range(2):
            found, expected = (env.step(np.zeros(3, int)) for env in (checked, plain))
            np.testing.assert_array_equal(found[0]["state"], expected[0]["state"])
    assert checked.call("resets") == (3, 2, 2)


def test_a_slow_reset_is_not_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "SLOW_RESET", 0)
    env = make("unseeded")
    env.reset(seed=0)
    assert env.call("resets") == (1, 1)


def test_copies_of_neighbouring_seeds_have_nothing_in_common() -> None:
    seeds = [child_seeds(seed, 4) for seed in (1, 2, 3)]
    assert len({child for children in seeds for child in children}) == 12
    assert child_seeds(1, 6)[:4] == seeds[0]  # the first copies have the same whatever follows
    assert child_seeds([7, None], 2) == [7, None]
    with pytest.raises(ValueError, match="seed has 1 values; expected one for each of the 2"):
        child_seeds([7], 2)
