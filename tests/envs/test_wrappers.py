"""DataCollectorWrapper around environments whose frames say which episode and step they are from."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rewardlab.data import read_episodes
from rewardlab.envs import make_vec_env
from rewardlab.envs.wrappers import DataCollectorWrapper
from rewardlab.errors import DataError

SIZE = 4


class CountingEnv(gymnasium.Env):
    """Episode e of environment i lasts 2 + (i + e) % 3 steps; even episodes succeed in step 1 and lose it again."""

    def __init__(self, index=0, obs="dict", success_key="success"):
        self.index, self.obs_kind, self.success_key = index, obs, success_key
        image = spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8)
        state = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.observation_space = {
            "dict": spaces.Dict({"state": state, "images": spaces.Dict({"base_camera": image})}),
            "state": state,
            "image": image,
        }[obs]
        self.action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.episode = -1

    def _now(self):
        success = self.step_count == 1 and self.episode % 2 == 0
        self.success_once = success or (self.success_once and self.step_count > 0)
        state = np.array([self.index, self.episode, self.step_count], np.float64)
        image = np.full((SIZE, SIZE, 3), (self.index, self.episode, self.step_count), np.uint8)
        obs = {"dict": {"state": state, "images": {"base_camera": image}}, "state": state, "image": image}[
            self.obs_kind
        ]
        return obs, {self.success_key: success, "success_once": self.success_once, "grasp": self.step_count == 2}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.step_count = 0
        self.success_once = False
        return self._now()

    def step(self, action):
        self.step_count += 1
        self.last_action = action
        ended = self.step_count == 2 + (self.index + self.episode) % 3
        truncated = ended and self.episode % 2 == 1
        return (*self._swap(self._now(), ended and not truncated, truncated),)

    def _swap(self, now, terminated, truncated):
        obs, info = now
        return obs, float(self.step_count), terminated, truncated, info


def vector(mode, count=3, **options):
    return SyncVectorEnv([lambda i=i: CountingEnv(i, **options) for i in range(count)], autoreset_mode=mode)


class RenderedEnv(VectorEnv):
    """A batch environment with `render_cameras`, resetting in the same step; draws what CountingEnv would."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, count=3):
        self.inner = vector(AutoresetMode.SAME_STEP, count, obs="state")
        self.num_envs = count
        self.observation_space, self.action_space = self.inner.observation_space, self.inner.action_space
        self.rendered = 0

    def reset(self, *, seed=None, options=None):
        self.state, infos = self.inner.reset(seed=seed)
        return self.state, infos

    def step(self, actions):
        result = self.inner.step(actions)
        self.state, self.final = result[0], result[4].get("final_obs")
        return result

    def render_cameras(self, cameras, image_size=None, env_ids=None, final=False):
        ids = np.arange(self.num_envs) if env_ids is None else env_ids
        self.rendered += len(ids)
        states = np.stack([self.final[i] if final else self.state[i] for i in ids])
        frames = np.broadcast_to(states[:, None, None].astype(np.uint8), (len(ids), *(image_size or (SIZE, SIZE)), 3))
        return {camera: frames for camera in cameras}


def collect(env, steps=40):
    """Actions say in which step they were given, so that a row shows which action led to it."""
    env.reset(seed=3)
    for step in range(steps):
        env.step(np.full(env.action_space.shape, step + 1, np.float32))
    env.close()


def check(directory, cameras=("base_camera",), mode=AutoresetMode.SAME_STEP):
    """Each file is one whole episode of one environment: frames, labels, rewards and ends in their right rows."""
    seen = set()
    for stored in read_episodes(directory):
        columns = stored.load().columns
        index, episode, _ = columns["observation.state"][0].astype(int).tolist()
        seen.add((index, episode))
        length = 3 + (index + episode) % 3
        assert stored.length == length
        expected = np.stack([np.full(length, index), np.full(length, episode), np.arange(length)], axis=1)
        np.testing.assert_array_equal(columns["observation.state"], expected)
        for camera in cameras:
            frames = columns[f"observation.images.{camera}"]
            np.testing.assert_array_equal(frames, np.broadcast_to(expected[:, None, None], frames.shape))
        np.testing.assert_array_equal(columns["reward"], np.arange(length))
        np.testing.assert_array_equal(columns["env_reward"], np.arange(length))
        np.testing.assert_array_equal(columns["success"], (np.arange(length) == 1) & (episode % 2 == 0))
        np.testing.assert_array_equal(columns["grasp"], np.arange(length) == 2)
        at_end = np.arange(length) == length - 1
        np.testing.assert_array_equal(columns["terminated"], at_end & (episode % 2 == 0))
        np.testing.assert_array_equal(columns["truncated"], at_end & (episode % 2 == 1))
        assert not columns["action"][0].any()
        assert (np.diff(columns["action"][1:, 0]) == 1).all()
        lengths = [2 + (index + e) % 3 for e in range(episode)]
        resets = episode if mode == AutoresetMode.NEXT_STEP else 0
        assert columns["action"][1, 0] == sum(lengths) + resets + 1
        assert stored.path.parent.name == ("success" if episode % 2 == 0 else "failure")
        assert stored.facts.seed == 3
    return seen


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("key", ["success", "is_success", "succeed"])
def test_no_frame_is_in_the_wrong_episode(tmp_path, mode, key):
    env = DataCollectorWrapper(vector(mode, success_key=key), tmp_path, image_size=None)
    collect(env)
    seen = check(tmp_path, mode=mode)
    assert len(seen) == sum(count.kept for count in env.counts.values())
    for index in range(3):  # nothing is left out in between
        episodes = sorted(episode for i, episode in seen if i == index)
        assert episodes == list(range(len(episodes)))
        assert len(episodes) >= 9


def test_rendered_frames_of_the_true_last_state(tmp_path):
    env = DataCollectorWrapper(RenderedEnv(), tmp_path, cameras=("base_camera", "wrist_camera"), image_size=(6, 8))
    collect(env)
    seen = check(tmp_path, cameras=("base_camera", "wrist_camera"))
    assert len(seen) >= 27
    assert read_episodes(tmp_path)[0].facts.cameras == {"base_camera": (6, 8), "wrist_camera": (6, 8)}


def test_resets_by_hand(tmp_path):
    env = DataCollectorWrapper(vector(AutoresetMode.DISABLED, obs="state"), tmp_path, cameras=())
    env.reset(seed=3)
    actions = np.zeros(env.action_space.shape, np.float32)
    for _ in range(12):
        _, _, terminated, truncated, _ = env.step(actions)
        if (terminated | truncated).any():
            env.reset(options={"reset_mask": terminated | truncated})
    env.close()
    for stored in read_episodes(tmp_path):
        columns = stored.load().columns
        assert columns["observation.state"][:, 2].tolist() == list(range(stored.length))
        assert len(np.unique(columns["observation.state"][:, :2], axis=0)) == 1


def test_stepping_on_after_an_end_is_no_episode(tmp_path):
    env = DataCollectorWrapper(vector(AutoresetMode.DISABLED, obs="state"), tmp_path, cameras=())
    env.reset(seed=3)
    ended = np.zeros(env.num_envs, bool)
    while not ended.all():
        # Gymnasium's own vector environment refuses to step an ended one; ours and others do not.
        env.unwrapped._autoreset_envs[:] = False
        _, _, terminated, truncated, _ = env.step(np.zeros(env.action_space.shape, np.float32))
        ended |= terminated | truncated
    env.close()
    assert len(read_episodes(tmp_path)) == env.num_envs


def test_what_the_environment_returns_passes_through(tmp_path):
    plain = vector(AutoresetMode.SAME_STEP)
    wrapped = DataCollectorWrapper(vector(AutoresetMode.SAME_STEP), tmp_path, image_size=None)
    plain.reset(seed=0), wrapped.reset(seed=0)
    actions = np.ones(plain.action_space.shape, np.float32)
    for _ in range(10):
        expected, found = plain.step(actions), wrapped.step(actions)
        np.testing.assert_equal(found[0], expected[0])
        for a, b in zip(found[1:4], expected[1:4], strict=True):
            np.testing.assert_array_equal(a, b)
        assert set(found[4]) == set(expected[4])
    wrapped.close()


def test_targets_stop_the_rendering(tmp_path):
    env = DataCollectorWrapper(RenderedEnv(), tmp_path, target_success=2, target_failure=3, policy="random")
    env.reset()
    actions = np.zeros(env.action_space.shape, np.float32)
    while not env.full:
        env.step(actions)
    rendered = env.unwrapped.rendered
    for _ in range(20):
        env.step(actions)
    assert env.unwrapped.rendered == rendered
    env.close()
    assert {name: count.kept for name, count in env.counts.items()} == {"success": 2, "failure": 3}
    assert sorted(stored.path.parent.name for stored in read_episodes(tmp_path)) == ["failure"] * 3 + ["success"] * 2
    assert {stored.facts.policy for stored in read_episodes(tmp_path)} == {"random"}


@pytest.mark.filterwarnings("ignore:.*every frame is labelled a failure")
def test_cartpole_gives_states_only(tmp_path):
    env = DataCollectorWrapper(gymnasium.make_vec("CartPole-v1", 2), tmp_path, cameras=())
    env.reset(seed=0)
    for _ in range(60):
        env.step(env.action_space.sample())
    env.close()
    stored = read_episodes(tmp_path)[0]
    assert stored.facts.task == "CartPole-v1"
    assert stored.facts.cameras == {}
    columns = stored.load().columns
    assert columns["action"].dtype == np.int64
    assert columns["observation.state"].shape == (stored.length, 4)
    assert not columns["grasp"].any()


def test_an_observation_that_is_an_image_is_the_camera(tmp_path):
    env = DataCollectorWrapper(vector(AutoresetMode.NEXT_STEP, obs="image"), tmp_path, image_size=(8, 8))
    collect(env, steps=6)
    stored = read_episodes(tmp_path)[0]
    assert stored.facts.cameras == {"base_camera": (8, 8)}
    assert stored.frame("base_camera", -1)[0, 0, 2] == stored.length - 1


def test_no_images_to_be_had_says_what_to_pass(tmp_path):
    with pytest.raises(DataError, match=r"no camera 'base_camera'.*\(state \[4\]\).*cameras=\(\)"):
        DataCollectorWrapper(gymnasium.make_vec("CartPole-v1", 2), tmp_path)


class NanEnv(CountingEnv):
    def _now(self):
        obs, info = super()._now()
        if (self.index, self.episode, self.step_count) == (1, 2, 1):
            obs["state"][0] = np.nan
        return obs, info


def test_nan_in_a_state_names_environment_and_step_and_keeps_what_was_finished(tmp_path):
    inner = SyncVectorEnv([lambda i=i: NanEnv(i) for i in range(3)], autoreset_mode=AutoresetMode.SAME_STEP)
    with (
        pytest.raises(DataError, match=r"'observation.state' is nan at .*env 1, step 1; expected finite"),
        DataCollectorWrapper(inner, tmp_path, image_size=None) as env,
    ):
        collect(env)
    assert (1, 1) in check(tmp_path)


def test_success_without_final_info_is_refused(tmp_path):
    """Otherwise the last frame of an episode would get the label of the next one's first."""

    class Forgetful(RenderedEnv):
        def step(self, actions):
            *result, infos = super().step(actions)
            infos.pop("final_info", None)
            return (*result, infos)

    env = DataCollectorWrapper(Forgetful(), tmp_path)
    with pytest.raises(DataError, match="gives no infos\\['final_info'\\]"):
        collect(env)
    env.close()


def test_an_environment_without_labels_is_not_a_stream_of_failures_in_silence(tmp_path):
    env = DataCollectorWrapper(make_vec_env("CartPole-v1", num_envs=2), tmp_path, cameras=(), target_success=1)
    env.reset(seed=0)

    def run():
        for _ in range(600):
            env.step(np.zeros(2, int))

    with pytest.raises(DataError, match=r"none of success, is_success, succeed.*target_success is never reached"):
        run()


def test_only_watched_environments_are_drawn_and_written(tmp_path: Path) -> None:
    env = make_vec_env("tabletop/PickCube", num_envs=6, max_episode_steps=3)
    drawn: list[int] = []
    render = env.unwrapped.render_cameras  # type: ignore[attr-defined]

    def counted(*args: Any, **kwargs: Any) -> Any:
        frames = render(*args, **kwargs)
        drawn.append(len(frames["base_camera"]))
        return frames

    env.unwrapped.render_cameras = counted  # type: ignore[attr-defined]
    with DataCollectorWrapper(env, tmp_path, watched_envs=2) as wrapped:
        first, _ = wrapped.reset(seed=0)
        for _ in range(6):
            wrapped.step(wrapped.action_space.sample())
    assert set(drawn) == {2}
    episodes = read_episodes(tmp_path)
    assert [episode.length for episode in episodes] == [4] * 4
    np.testing.assert_array_equal(episodes[1].load().columns["observation.state"][0], first[1])
