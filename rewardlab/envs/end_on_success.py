"""Ends episodes where a success classifier sees success, as on a robot, where nobody else does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from rewardlab.envs.camera_frames import FINAL_FRAMES, CameraFrames, Frames
from rewardlab.envs.step_results import Bools, merge_infos
from rewardlab.frame_sizes import FrameSize
from rewardlab.observations import as_observation, final_rows, take_row, to_numpy

Verdict: TypeAlias = Callable[[dict[str, Frames]], Bools]  # frames by camera, [n, H, W, 3] -> success, bool [n]


class EndOnSuccess(VectorWrapper[Any, Any, Any]):
    """Around a vector environment that resets in the same step: an episode also terminates where `verdict` has called
    `hold` frames in a row a success.

    It looks at the frames of cameras at the sizes `scored`. After the reset nobody could draw them, so they become a
    part of the infos (FINAL_FRAMES), and those of `cameras` at `image_size` a part of the final observations.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        verdict: Verdict,
        scored: Mapping[str, FrameSize],
        cameras: Sequence[str] = (),
        image_size: tuple[int, int] | None = None,
        hold: int = 1,
    ) -> None:
        super().__init__(env)
        self.verdict = verdict
        self.hold = hold
        self.claims = np.zeros(env.num_envs, np.int64)  # in a row, up to the present frame
        self.ended = np.zeros(env.num_envs, bool)  # in the last step, by claims alone or at a time limit
        self._scored = CameraFrames(env, list(scored), scored, advice=". A reward model with ends_episode looks at it")
        self._scored.check()
        self._others = CameraFrames(env, cameras, image_size, advice=". env.train.cameras or data.collection names it")
        self._others.check()
        self._scored.keep_last()
        self._others.keep_last()

    def drop_frames(self) -> None:
        """From now on, nobody needs the frames of `cameras` in final observations."""
        self._others.drop_last()
        self._others = CameraFrames(self.env, ())

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask")
        self.claims[slice(None) if mask is None else mask] = 0
        return super().reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        done = to_numpy(terminated) | to_numpy(truncated)
        scored = self._scored.following(obs, infos, done)
        self.claims = np.where(self.verdict(scored), self.claims + 1, 0)
        claimed = self.claims >= self.hold
        self.ended = claimed & ~to_numpy(terminated)
        terminated, truncated = to_numpy(terminated) | claimed, to_numpy(truncated) & ~claimed
        ends = claimed & ~done
        self.claims[done | ends] = 0
        if not (done | ends).any():
            return obs, reward, terminated, truncated, infos
        final_obs = np.full(self.num_envs, None, object)
        for rows, source in ((np.flatnonzero(done), infos.get("final_obs")), (np.flatnonzero(ends), obs)):
            if len(rows):
                seen = as_observation(final_rows(source, rows))
                drawn = self._others.now(obs, rows) if source is obs else self._others.final(infos, rows)
                if drawn:
                    seen["images"] = drawn | seen.get("images", {})
                for place, row in enumerate(rows):
                    final_obs[row] = take_row(seen, place)
        now = {key: value for key, value in infos.items() if not key.lstrip("_").startswith("final_")}
        final_info = merge_infos(now, infos.get("final_info"), done)
        infos = {**infos, "final_obs": final_obs, "final_info": final_info, "_final_obs": done | ends}
        infos[FINAL_FRAMES] = scored
        if ends.any():
            obs, begun = self.env.reset(options={"reset_mask": ends})
            infos = merge_infos(infos, begun, ends)
        return obs, reward, terminated, truncated, infos
