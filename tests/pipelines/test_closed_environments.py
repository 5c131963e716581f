"""Environments are closed however a run or a collection ends: a simulator or a robot may need it."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from policy_runs import SMALL_ZOO

from rewardlab.config import load_config
from rewardlab.envs import make_copies, make_vec_env
from rewardlab.errors import RewardlabError
from rewardlab.pipelines import collect, train_policy

BREAKS = {"never": None, "an error": RuntimeError("a wire came loose"), "Ctrl-C": KeyboardInterrupt()}


class Breaking(gymnasium.Env[Any, Any]):
    """Raises an error in the 20th step of a copy; counts the copies that were made and closed."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    made, closed = 0, 0

    def __init__(self, breaks: str = "never", most: int = 99, closes: bool = True) -> None:
        if Breaking.made == most:
            raise RuntimeError("no more robots")
        self.breaks, self.closes, self.life = BREAKS[breaks], closes, 0
        Breaking.made += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.normal(size=2).clip(-1, 1).astype(np.float32), {"success": False}

    def step(self, action: Any) -> Any:
        self.life += 1
        if self.breaks is not None and self.life == 20:
            raise self.breaks
        return self.np_random.normal(size=2).clip(-1, 1).astype(np.float32), 0.0, self.life % 5 == 0, False, {}

    def close(self) -> None:
        Breaking.closed += 1
        if not self.closes:
            raise RuntimeError("it cannot be closed")


gymnasium.register("Breaking-v0", Breaking)


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Breaking, "made", 0)
    monkeypatch.setattr(Breaking, "closed", 0)


def run(tmp_path: Path, config: str, *overrides: str, breaks: str) -> None:
    where = [f"runner.logger.log_path={tmp_path}", f"data.collection.save_dir={tmp_path / 'episodes'}"]
    env = ["env.train.id=Breaking-v0", "env.train.processes=1", f"env.train.options.breaks={breaks}"]
    cfg = load_config(config, [*SMALL_ZOO, *where, *env, *overrides])
    (collect if cfg.runner.task == "collect" else train_policy).run(cfg)


@pytest.mark.parametrize(
    ("breaks", "error"), [("an error", RuntimeError), ("Ctrl-C", KeyboardInterrupt), ("never", None)]
)
@pytest.mark.parametrize("task", ["train_policy", "collect"])
def test_environments_are_closed_at_the_end(task: str, breaks: str, error: Any, tmp_path: Path) -> None:
    more = ["data.collection.policy=random", "data.collection.episodes=30", "+env.train.cameras=[]"]
    overrides = [f"runner.task={task}", *(more if task == "collect" else [])]
    if error is None:
        run(tmp_path, "zoo/cartpole_ppo", *overrides, breaks=breaks)
    else:
        with pytest.raises(error):
            run(tmp_path, "zoo/cartpole_ppo", *overrides, breaks=breaks)
    assert Breaking.closed == Breaking.made == (4 if task == "collect" else 6)


@pytest.mark.parametrize(
    ("config", "overrides", "error"),
    [
        ("zoo/cartpole_ppo", ["runner.task=collect", "data.collection.episodes=9"], "expert"),
        ("zoo/pendulum_sac", [], "action"),
    ],
    ids=["an expert that it does not have", "a learner for other actions"],
)
def test_environments_are_closed_if_something_else_cannot_be_made(
    config: str, overrides: list[str], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, closes in enumerate(("true", "false")):  # an error of close() hides nothing and leaves nothing open
        more = [*overrides, "+env.train.cameras=[]", f"env.train.options.closes={closes}"]
        with pytest.raises(RewardlabError, match=error):
            run(tmp_path / str(number), config, *more, breaks="never")
    assert Breaking.closed == Breaking.made > 0


def test_environments_of_the_first_worker_are_closed_if_the_second_cannot_be_built(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no more robots"):
        run(tmp_path, "zoo/cartpole_ppo", "cluster.workers.env=2", "env.train.options.most=3", breaks="never")
    assert Breaking.closed == Breaking.made == 3


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"options": {"most": 3}}, "no more robots"),
        ({"image_size": [3, 8, 8]}, "does not offer it"),
        ({"wrappers": [{"name": "gymnasium.wrappers.vector:RescaleAction"}]}, "does not take these options"),
    ],
    ids=["a copy that cannot be made", "a key that is not offered", "a wrapper of all copies"],
)
def test_copies_are_closed_if_they_cannot_be_used(settings: dict[str, Any], error: str) -> None:
    with pytest.raises((RewardlabError, RuntimeError), match=error):
        make_vec_env("Breaking-v0", num_envs=4, processes=1, **settings)
    assert Breaking.closed == Breaking.made > 0


def test_a_copy_that_fails_while_its_speed_is_measured_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(env: Breaking, action: Any) -> Any:
        raise RuntimeError("a wire came loose")

    monkeypatch.setattr(make_copies, "own_cores", lambda: 4)
    monkeypatch.setattr(Breaking, "step", fail)
    env = make_vec_env("Breaking-v0", num_envs=2)
    assert (Breaking.made, Breaking.closed) == (3, 1)
    env.close()
