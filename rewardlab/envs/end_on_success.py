"""Ends episodes where a success classifier sees success, as on a robot, where nobody else does."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from rewardlab.envs.step_results import Bools, CameraFrames, Frames
from rewardlab.observations import as_observation, final_rows, to_numpy

Verdict: TypeAlias = Callable[[dict[str, Frames]], Bools]  # frames by camera, [n, H, W, 3] -> success, bool [n]


class EndOnSuccess(VectorWrapper[Any, Any, Any]):
    """Around a vector environment that resets in the same step: an episode also terminates at the first frame that
    `verdict` calls a success.

    The frames of `cameras` become a part of the final observations: after the reset nobody could draw them.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], verdict: Verdict, cameras: Sequence[str], image_size: tuple[int, int]
    ) -> None:
        super().__init__(env)
        self.verdict = verdict
        self._frames = CameraFrames(env, cameras, image_size, advice=". A reward model with ends_episode looks at it")
        self._frames.check()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        done = to_numpy(terminated) | to_numpy(truncated)
        frames = self._frames.following(obs, infos, done)
        ends = self.verdict(frames) & ~done
        if not (done | ends).any():
            return obs, reward, terminated, truncated, infos
        final_obs = np.full(self.num_envs, None, object)
        for rows, source in ((np.flatnonzero(done), infos.get("final_obs")), (np.flatnonzero(ends), obs)):
            if len(rows):
                seen = as_observation(final_rows(source, rows))
                drawn = {camera: pictures[rows] for camera, pictures in frames.items()}
                seen["images"] = drawn | seen.get("images", {})
                for place, row in enumerate(rows):
                    final_obs[row] = _row(seen, place)
        infos = {**infos, "final_obs": final_obs, "final_info": _final_info(infos, done), "_final_obs": done | ends}
        if ends.any():
            obs, _ = self.env.reset(options={"reset_mask": ends})
        return obs, reward, to_numpy(terminated) | ends, truncated, infos


def _final_info(infos: dict[str, Any], done: Bools) -> dict[str, Any]:
    """What is true of the last frames: what the environment said of those it ended, else what it says now."""
    said = infos.get("final_info") or {}
    facts = {key: to_numpy(value).copy() for key, value in infos.items() if not key.lstrip("_").startswith("final_")}
    for key, value in said.items():
        if key in facts:
            facts[key][done] = to_numpy(value)[done]
    return facts


def _row(tree: Any, place: int) -> Any:
    return {key: _row(part, place) for key, part in tree.items()} if isinstance(tree, dict) else tree[place]
