"""Episodes that a verdict ends: labels and facts of last frames stay those of last frames."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rewardlab.envs.end_on_success import EndOnSuccess
from rewardlab.envs.step_results import following_success, known_success
from rewardlab.frame_sizes import FrameSize

PICTURE = spaces.Box(0, 255, (8, 8, 3), np.uint8)


class Counter(gymnasium.Env[Any, Any]):
    """Succeeds in its third and last step; says so in `step` alone, beside a nested fact."""

    observation_space = spaces.Dict({"state": spaces.Box(0, 9, (1,)), "images": spaces.Dict({"eye": PICTURE})})
    action_space = spaces.Discrete(2)

    def _observe(self) -> Any:
        picture = np.full((8, 8, 3), self.steps, np.uint8)
        return {"state": np.array([self.steps], np.float32), "images": {"eye": picture}}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        last = self.steps == 3
        return self._observe(), 0.0, last, False, {"success": last, "parts": {"steps": self.steps}}


@pytest.mark.parametrize("ends_at", [2, 99])
def test_success_of_the_last_frame_is_known(ends_at: int) -> None:
    inner = SyncVectorEnv([Counter] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    scored = {"eye": FrameSize(8, 8)}
    env = EndOnSuccess(inner, lambda frames: frames["eye"][:, 0, 0, 0] == ends_at, scored, ["eye"], (8, 8))
    env.reset(seed=0)
    step = min(ends_at, 3)
    for _ in range(step):
        obs, _, terminated, _, infos = env.step(np.zeros(2, int))
    assert terminated.all()
    assert (obs["state"] == 0).all()  # the next episode has begun
    assert [row["state"][0] for row in infos["final_obs"]] == [step, step]
    assert [row["images"]["eye"][0, 0, 0] for row in infos["final_obs"]] == [step, step]
    assert following_success(infos, terminated).tolist() == [step == 3] * 2
    assert env.ended.tolist() == [ends_at == 2] * 2  # else it was the environment that ended them
    assert infos["final_info"]["parts"]["steps"].tolist() == [step, step]


def test_the_first_frame_after_a_claim_is_not_labelled_as_the_last_one_before_it() -> None:
    inner = SyncVectorEnv([Counter] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    env = EndOnSuccess(inner, lambda frames: frames["eye"][:, 0, 0, 0] == 2, {"eye": FrameSize(8, 8)})
    env.reset(seed=0)
    for _ in range(2):
        *_, infos = env.step(np.zeros(2, int))
    assert not known_success(infos, 2).any()  # the reset says nothing, and the step was of the last episode
    assert known_success(infos["final_info"], 2).all()


def _two_steps() -> Any:
    return gymnasium.wrappers.TimeLimit(Counter(), 2)


def test_claims_at_the_time_limit_terminate_the_episode() -> None:
    inner = SyncVectorEnv([_two_steps] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    scored = {"eye": FrameSize(8, 8)}
    env = EndOnSuccess(inner, lambda frames: np.array([True, False]), scored, ["eye"], (8, 8), hold=2)
    env.reset(seed=0)
    env.step(np.zeros(2, int))
    _, _, terminated, truncated, _ = env.step(np.zeros(2, int))
    assert terminated.tolist() == [True, False]
    assert truncated.tolist() == [False, True]
    assert env.ended.tolist() == [True, False]
