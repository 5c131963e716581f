"""Last frames are drawn where somebody will look at them, and only there; a frame is drawn once."""

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from copy_toys import WALK, WalkEnv

from rewardlab.config.schema import CollectionConfig, EnvConfig
from rewardlab.data import read_episodes
from rewardlab.envs.copies import CopiesVectorEnv
from rewardlab.envs.end_on_success import EndOnSuccess
from rewardlab.envs.wrappers import DataCollectorWrapper
from rewardlab.errors import DataError
from rewardlab.frame_sizes import FrameSize
from rewardlab.rl.evaluation import Evaluation
from rewardlab.workers.env import EnvWorker, FrameRequest

CONFIG = EnvConfig(
    id="copy-toys/Walk-v0",
    num_envs=3,
    processes=1,  # or random actions would be tried, and some of them are deadly
    cameras=("front",),
    image_size=(3, 8, 8),
    options={"kind": "box"},
)
FRONT = FrameRequest(("front",), terminal=True)


def make_walk(keeps_state: bool = False) -> CopiesVectorEnv:
    return CopiesVectorEnv([partial(WalkEnv, "box", keeps_state)] * 3)


def drawn(env: Any) -> list[int]:
    return list(env.unwrapped.call("drawn"))


def walk(env: Any, steps: int = 12) -> list[int]:
    """Step everything, and return the number of episodes that ended in each environment."""
    ended = np.zeros(3, int)
    for _ in range(steps):
        _, _, terminated, truncated, _ = env.step(np.full(3, WALK))
        ended += terminated | truncated
    assert ended.all()
    return ended.tolist()


@pytest.mark.parametrize("options", [{"kind": "box"}, {"kind": "box", "keeps_state": True}], ids=["before", "later"])
def test_in_terminal_mode_as_many_frames_are_drawn_as_episodes_end(options: dict[str, Any]) -> None:
    worker = EnvWorker(EnvConfig(**{**vars(CONFIG), "options": options}), seed=0, frames=FRONT)
    worker.begin(0)
    for _ in range(12):
        worker.step(np.full(3, WALK))
    episodes, frames = worker.fetch_episodes(), worker.fetch_frames()["front"]
    assert sum(drawn(worker.env)) == len(frames) == len(episodes.length) > 3
    assert frames[:, 0, 0, 0].tolist() == episodes.length.tolist()  # the last ones: the picture counts the steps
    worker.request_frames(None)
    walk(worker.env)
    assert sum(drawn(worker.env)) == len(frames)


def test_an_evaluation_draws_nothing() -> None:
    class Walk(torch.nn.Module):
        def act(self, observation: Any, *_: Any, **__: Any) -> dict[str, torch.Tensor]:
            return {"action": torch.zeros(len(observation), dtype=torch.int64)}

    evaluation = Evaluation(CONFIG, seed=0)
    evaluation.run(Walk())
    assert drawn(evaluation.env) == [0, 0, 0]


def test_only_watched_environments_draw_and_none_when_all_is_collected(tmp_path: Path) -> None:
    env = DataCollectorWrapper(make_walk(), tmp_path, watched_envs=2, max_episodes=6, cameras=("front",))
    with env:
        env.reset(seed=0)
        while not env.full:
            env.step(np.full(3, WALK))
        count = drawn(env)
        assert count[2] == 0
        walk(env)
        assert drawn(env) == count
    assert sum(count) == sum(episode.length for episode in read_episodes(tmp_path))  # one picture of each frame


def test_a_frame_for_two_at_the_same_size_is_drawn_once(tmp_path: Path) -> None:
    plan = CollectionConfig(save_dir=str(tmp_path))
    worker = EnvWorker(CONFIG, seed=0, frames=FrameRequest(("front",)), collection=plan)
    worker.begin(0)
    ended = 0
    for _ in range(12):
        worker.step(np.full(3, WALK))
        ended += len(worker._last.ended)
    assert sum(drawn(worker.env)) == 3 + 12 * 3 + ended  # the first, those of steps, and those after a reset
    worker.close()


def test_episodes_that_a_verdict_ends_are_drawn_once_per_frame() -> None:
    inner = make_walk()
    scored = {"front": FrameSize(8, 8)}
    env = EndOnSuccess(inner, lambda frames: frames["front"][:, 0, 0, 0] == 3, scored, ["front", "top"], (8, 8))
    env.reset(seed=0)
    ended = walk(env)
    count = drawn(env)
    assert sum(count) == 12 * 3 + sum(ended)  # the camera that is scored in each step, the other at ends
    env.drop_frames()
    walk(env)
    assert sum(drawn(env)) == sum(count) + 12 * 3


def test_last_frames_that_nobody_announced_are_an_error() -> None:
    for keeps_state in (False, True):
        env = make_walk(keeps_state)
        env.reset(seed=0)
        walk(env)
        with pytest.raises(DataError, match="the last frame of camera front was not drawn: call keep_last_frames"):
            env.render_cameras(("front",), None, np.array([0]), final=True)


class Brightened(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draws what the environment does, 100 brighter."""

    def render_cameras(self, cameras: Any, image_size: Any) -> Any:
        frames = self.env.get_wrapper_attr("render_cameras")(cameras, image_size)
        return {camera: frame + 100 for camera, frame in frames.items()}


@pytest.mark.parametrize("keeps_state", [False, True])
def test_last_frames_are_those_of_a_wrapper_that_draws(keeps_state: bool) -> None:
    env = CopiesVectorEnv([lambda: Brightened(WalkEnv("box", keeps_state))])
    env.keep_last_frames("me", {(8, 8): ["front"]})
    env.reset(seed=0)
    steps, ended = 0, np.zeros(1, bool)
    while not ended:
        _, _, terminated, truncated, _ = env.step(np.full(1, WALK))
        steps, ended = steps + 1, terminated | truncated
    last = env.render_cameras(["front"], (8, 8), final=True)["front"]
    assert last[0, 0, 0, 0] == 100 + steps
    assert not env.keep_last_states(2)  # of the environment inside, which the wrapper would not have drawn
