"""data.collection.frames: how many frames are drawn, which of them are stored, and that they are the right ones."""

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import copy_toys  # noqa: F401 - registers environments
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rewardlab.config.schema import EnvConfig
from rewardlab.data import Episode, read_episodes
from rewardlab.envs import make_vec_env
from rewardlab.envs.copies import CopiesVectorEnv
from rewardlab.envs.end_on_success import EndOnSuccess
from rewardlab.envs.tabletop import env as tabletop
from rewardlab.envs.wrappers import DataCollectorWrapper
from rewardlab.errors import ConfigError, DataError
from rewardlab.frame_choice import FrameChoice
from rewardlab.frame_sizes import FrameSize

CHOICES = ["all", "every:5", "last:4"]
DRAWN: Counter[str] = Counter()  # frames by camera


class Plain(gymnasium.Env[Any, Any]):
    """Episode e of copy i lasts 6 + (i + e) % 4 steps; its picture says copy, episode and step. Drawn by render()."""

    action_space = spaces.Box(-1, 1, (2,), np.float32)
    observation_space: Any = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    render_mode = "rgb_array"

    def __init__(self, index: int = 0) -> None:
        self.index, self.episode = index, -1

    @property
    def now(self) -> tuple[int, int, int]:
        return self.index, self.episode, self.steps

    def _observe(self) -> Any:
        return np.array(self.now, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episode += 1
        self.steps = 0
        return self._observe(), {"success": False}

    def step(self, action: Any) -> Any:
        self.steps += 1
        ended = self.steps == 6 + (self.index + self.episode) % 4
        return self._observe(), 1.0, ended and self.episode % 2 == 0, ended, {"success": self.steps == 5}

    def render(self) -> Any:
        DRAWN["base_camera"] += 1
        return picture(self.now)


class Keeping(Plain):
    """The same with two cameras, and with states that can be drawn later."""

    camera_names = ("base_camera", "wrist_camera")
    render_mode = None

    def render_cameras(self, cameras: Any, image_size: Any = None) -> Any:
        return self.draw_state(self.now, cameras, image_size)

    def keep_state(self) -> Any:
        return self.now

    def draw_state(self, state: Any, cameras: Any, size: Any) -> Any:
        DRAWN.update(cameras)
        return {camera: picture(state) for camera in cameras}


class Seeing(Keeping):
    """The same with the picture of a camera in its observations."""

    observation_space = spaces.Dict(
        {
            "state": Plain.observation_space,
            "images": spaces.Dict({"base_camera": spaces.Box(0, 255, (8, 8, 3), np.uint8)}),
        }
    )

    def _observe(self) -> Any:
        return {"state": super()._observe(), "images": {"base_camera": picture(self.now)}}


def picture(state: tuple[int, int, int]) -> Any:
    return np.broadcast_to(np.array(state, np.uint8), (8, 8, 3)).copy()


def copies(kind: type[Plain], count: int = 3) -> VectorEnv[Any, Any, Any]:
    return CopiesVectorEnv([lambda i=i: kind(i) for i in range(count)])  # type: ignore[misc]


def collect(env: VectorEnv[Any, Any, Any], place: Path, frames: str, **options: Any) -> list[Episode]:
    """Collect some episodes; every drawn frame is counted in DRAWN."""
    DRAWN.clear()
    options = {"image_size": (8, 8), "max_episodes": 10, **options}
    with DataCollectorWrapper(env, place, frames=frames, **options) as wrapped:
        wrapped.action_space.seed(0)
        wrapped.reset(seed=3)
        while not wrapped.full:
            wrapped.step(wrapped.action_space.sample())
    return [stored.load() for stored in read_episodes(place)]


def due(frames: str, length: int) -> list[int]:
    """The rows that should have pictures, by hand."""
    if frames == "all":
        return list(range(length))
    if frames == "every:5":
        return [t for t in range(length) if t % 5 == 0 or t == length - 1]
    return list(range(length))[-4:]


def check(episodes: list[Episode], frames: str, cameras: tuple[str, ...] = ("base_camera",)) -> int:
    """Whole episodes, whose pictures are those of the right rows; returns the number of pictures of a camera."""
    for episode in episodes:
        state = episode.columns["observation.state"]
        assert state[:, 2].tolist() == list(range(len(episode)))
        assert episode.frame_rows.tolist() == due(frames, len(episode))
        assert ("frame_rows" in episode.columns) == (len(due(frames, len(episode))) < len(episode))
        for camera in cameras:
            pictures = episode.columns[f"observation.images.{camera}"]
            np.testing.assert_array_equal(pictures[:, 0, 0], state[episode.frame_rows].astype(np.uint8))
    return sum(len(episode.frame_rows) for episode in episodes)


@pytest.mark.parametrize("frames", CHOICES)
def test_copies_that_keep_states_draw_what_is_stored_and_nothing_else(tmp_path: Path, frames: str) -> None:
    cameras = ("base_camera", "wrist_camera")
    episodes = collect(copies(Keeping), tmp_path, frames, cameras=cameras)
    assert len(episodes) == 10
    count = check(episodes, frames, cameras)
    assert dict(DRAWN) == {"base_camera": count, "wrist_camera": count}


@pytest.mark.parametrize("frames", CHOICES)
def test_tabletop_draws_what_is_stored_and_the_same_pixels(
    tmp_path: Path, frames: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> VectorEnv[Any, Any, Any]:
        options = {"randomize": True}
        return make_vec_env("tabletop/PickCube", num_envs=3, max_episode_steps=7, success_hold_steps=2, options=options)

    def counted(task: Any, world: Any, looks: Any, camera: str, *size: int) -> Any:
        DRAWN[camera] += len(world.grip)
        return render(task, world, looks, camera, *size)

    render = tabletop.render
    monkeypatch.setattr(tabletop, "render", counted)
    whole = collect(made(), tmp_path / "all", "all", image_size=(32, 32))
    some = collect(made(), tmp_path / "some", frames, image_size=(32, 32))
    assert DRAWN["base_camera"] == sum(len(due(frames, len(episode))) for episode in some)
    for a, b in zip(whole, some, strict=True):
        assert b.frame_rows.tolist() == due(frames, len(b))
        for name in a.columns:
            rows = b.frame_rows if name.startswith("observation.images.") else slice(None)
            np.testing.assert_array_equal(a.columns[name][rows], b.columns[name])


def test_an_episode_that_is_not_kept_is_not_drawn(tmp_path: Path) -> None:
    """Every episode of these copies is a success: of those beyond the target, none is drawn."""
    episodes = collect(copies(Keeping, 4), tmp_path, "last:4", target_success=2, target_failure=None)
    assert len(episodes) == 2
    assert DRAWN["base_camera"] == 8


@pytest.mark.parametrize("frames", CHOICES)
def test_pictures_in_observations_are_never_drawn(tmp_path: Path, frames: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        episodes = collect(copies(Seeing), tmp_path, frames)
    check(episodes, frames)
    assert not DRAWN


def test_one_camera_in_observations_and_another_drawn_at_the_end(tmp_path: Path) -> None:
    cameras = ("base_camera", "wrist_camera")
    episodes = collect(copies(Seeing), tmp_path, "last:4", cameras=cameras)
    assert dict(DRAWN) == {"wrist_camera": check(episodes, "last:4", cameras)}


@pytest.mark.parametrize("frames", CHOICES)
def test_an_environment_with_a_plain_render_draws_every_frame_for_the_last_ones_and_says_so(
    tmp_path: Path, frames: str
) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        episodes = collect(copies(Plain), tmp_path, frames)
    count = check(episodes, frames)
    texts = [str(warning.message) for warning in said]
    if frames == "last:4":
        assert len(texts) == 1
        assert "draws every frame, since it cannot draw a kept state" in texts[0]
        assert DRAWN["base_camera"] == sum(map(len, episodes))
    else:
        assert not texts
        assert DRAWN["base_camera"] == count


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("frames", CHOICES)
def test_other_vector_environments(tmp_path: Path, frames: str, mode: AutoresetMode) -> None:
    env = SyncVectorEnv([lambda i=i: Seeing(i) for i in range(3)], autoreset_mode=mode)  # type: ignore[misc]
    check(collect(env, tmp_path, frames), frames)


def test_only_watched_environments_are_drawn(tmp_path: Path) -> None:
    episodes = collect(copies(Keeping, 4), tmp_path, "every:5", watched_envs=2)
    assert DRAWN["base_camera"] == check(episodes, "every:5")
    assert {int(episode.columns["observation.state"][0, 0]) for episode in episodes} == {0, 1}


@pytest.mark.parametrize("frames", CHOICES)
def test_episodes_that_a_classifier_ends(tmp_path: Path, frames: str) -> None:
    """The reset by the wrapper does not lose the states of the episode that it ends."""
    scored = {"wrist_camera": FrameSize(8, 8)}
    verdict = lambda found: found["wrist_camera"][:, 0, 0, 2] == 5  # noqa: E731
    env: Any = EndOnSuccess(copies(Keeping), verdict, scored, ["base_camera"], (8, 8))
    episodes = collect(env, tmp_path, frames)
    assert {len(episode) for episode in episodes} == {6}
    check(episodes, frames)


def test_a_frame_that_somebody_else_asked_for_is_not_drawn_again(tmp_path: Path) -> None:
    DRAWN.clear()
    env = copies(Keeping, 1)
    with DataCollectorWrapper(env, tmp_path, frames="last:4", image_size=(8, 8), max_episodes=1) as wrapped:
        wrapped.reset(seed=0)
        while not wrapped.full:
            wrapped.step(wrapped.action_space.sample())
            if not wrapped.full:
                env.render_cameras(("base_camera",), (8, 8))  # type: ignore[attr-defined]
    assert DRAWN["base_camera"] == 6  # steps 1 to 5 for the other, and the last one


@pytest.mark.parametrize("text", ["", "some", "every:0", "last:-1", "every:", "last:2.5", "every:5,last:3", 5, None])
def test_other_words_are_refused(tmp_path: Path, text: Any) -> None:
    with pytest.raises(ConfigError, match=r"frames: found .*, expected all, every:5 .* or last:10"):
        DataCollectorWrapper(copies(Keeping), tmp_path, frames=text)


def test_words_are_read() -> None:
    choices = [FrameChoice.parse(text) for text in ("all", "every:3", "last:12")]
    assert [(choice.every, choice.last) for choice in choices] == [(1, None), (3, None), (1, 12)]


def test_a_camera_that_is_not_there_is_named_before_the_first_episode(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no camera 'top'"):
        DataCollectorWrapper(copies(Keeping), tmp_path, frames="last:4", cameras=("top",))


def test_any_number_of_processes_gives_the_same_files(tmp_path: Path) -> None:
    drawn = {}
    for processes in (1, 2):
        config = EnvConfig(
            id="copy-toys/Walk-v0", num_envs=3, processes=processes, options={"kind": "box", "keeps_state": True}
        )
        with DataCollectorWrapper(
            make_vec_env(config), tmp_path / str(processes), frames="last:3", cameras=("front", "top"), max_episodes=7
        ) as env:
            env.reset(seed=0)
            while not env.full:
                env.step(np.zeros(3, int))
            drawn[processes] = sum(env.env.call("drawn"))  # type: ignore[attr-defined]
    files = [[(e.digest, e.path.name) for e in read_episodes(tmp_path / name)] for name in ("1", "2")]
    assert files[0] == files[1]
    stored = [episode.load() for episode in read_episodes(tmp_path / "2")]
    assert [e.columns["observation.images.top"][:, 0, 0, 0].tolist() for e in stored] == [
        [100 + row for row in range(max(0, len(e) - 3), len(e))] for e in stored
    ]
    assert drawn[1] == drawn[2] == 2 * sum(len(e.frame_rows) for e in stored)
