"""Success and failure pickles of HIL-SERL and SERL: which picture a label judges, order in time, unsure frames."""

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardlab.data import StoredEpisode, read_episodes
from rewardlab.data.imports import pickles
from rewardlab.data.imports.run_import import import_recording
from rewardlab.data.imports.source import ImportOptions
from rewardlab.errors import ConfigError, DataError

Transition = dict[str, Any]
CAMERA = "observation.images.wrist_1"


def frame(number: int) -> np.ndarray:
    """Return a picture whose first pixel is its number, stacked as SERL stacks frames."""
    picture = np.random.default_rng(number).integers(0, 255, (1, 8, 8, 3), dtype=np.uint8)
    picture[0, 0, 0] = number % 256
    return picture


def session(episodes: Sequence[int], start: int = 0) -> list[Transition]:
    """Return the transitions of episodes of these lengths; the frames are numbered through."""
    found, number = [], start
    for length in episodes:
        for step in range(length):
            before, after = (
                {"wrist_1": frame(n), "state": np.full((1, 3), n, np.float32)} for n in (number, number + 1)
            )
            found.append(
                {
                    "observations": before,
                    "actions": np.zeros(7),
                    "next_observations": after,
                    "rewards": np.asarray(0.0),
                    "masks": 1.0 - (step == length - 1),
                    "dones": bool(step == length - 1),
                }
            )
            number += 1
        number += 1  # the frame after the last step is not that after the reset
    return found


def record(directory: Path, transitions: list[Transition], successes: set[int], words: str = "success failure") -> Path:
    """Write the transitions as `record_success_fail.py` does; during `successes` the key was pressed."""
    directory.mkdir(parents=True, exist_ok=True)
    success, failure = words.split()
    lists = {f"cube_{len(successes)}_{success}_images": [], f"cube_{failure}_images": []}
    for number, transition in enumerate(transitions):
        lists[list(lists)[number not in successes]].append(transition)
    for name, content in lists.items():
        (directory / f"{name}_2025-01-02_10-11-12.pkl").write_bytes(pickle.dumps(content))
    return directory


def taken(directory: Path) -> list[list[tuple[int, str]]]:
    """Return the number and the label of every frame, by episode."""

    def of(episode: StoredEpisode) -> list[tuple[int, str]]:
        numbers = episode.load().columns[CAMERA][:, 0, 0, 0].tolist()
        states = [
            "unsure" if u else "success" if s else "failure"
            for s, u in zip(episode.labels(), episode.unsure(), strict=True)
        ]
        return list(zip(numbers, states, strict=True))

    return [of(episode) for episode in read_episodes(directory)]


def test_the_lists_are_put_into_the_order_of_time(tmp_path: Path) -> None:
    """A key pressed once in each episode; the frames around it, that HIL-SERL takes for failures, are unsure."""
    source = record(tmp_path / "in", session([12] * 6), {12 * e + 9 for e in range(6)})
    result = import_recording(source, tmp_path / "out")
    wanted = ["failure"] * 5 + ["unsure"] * 4 + ["success"] + ["unsure"] * 2
    assert taken(tmp_path / "out") == [[(13 * e + n, label) for n, label in enumerate(wanted)] for e in range(6)]
    assert result.notes == {"failures beside a success, now unsure": 36}
    assert any("transition of 'observations' (as HIL-SERL) shows" in remark for remark in result.remarks)


def test_the_picture_after_the_step(tmp_path: Path) -> None:
    """SERL's positives are next_observations; its files say goal and failed."""
    source = record(tmp_path / "in", session([12] * 6), {12 * e + 9 for e in range(6)}, "goal failed")
    import_recording(source, tmp_path / "out", ImportOptions(unsure_seconds=0.1))
    wanted = [(n, "failure") for n in range(8)] + [(8, "unsure"), (10, "success"), (10, "unsure"), (11, "failure")]
    assert taken(tmp_path / "out")[0] == wanted
    import_recording(source, tmp_path / "same", ImportOptions(align="same", unsure_seconds=0))
    assert taken(tmp_path / "same")[0][8:] == [(8, "failure"), (9, "success"), (10, "failure"), (11, "failure")]


def test_a_success_in_the_first_step_of_an_episode(tmp_path: Path) -> None:
    source = record(tmp_path / "in", session([4] * 8), {4 * e for e in range(8)})
    import_recording(source, tmp_path / "out", ImportOptions(unsure_seconds=0))
    assert [[label for _, label in one] for one in taken(tmp_path / "out")] == [["success"] + ["failure"] * 3] * 8


def test_lists_that_do_not_join_are_cut_into_blocks_of_time(tmp_path: Path) -> None:
    every_third = session([250])[::3]
    source = record(tmp_path / "in", every_third, set(range(60, 84)))
    result = import_recording(source, tmp_path / "out")
    assert [len(one) for one in taken(tmp_path / "out")] == [84]
    assert any("do not join in time" in remark for remark in result.remarks)
    assert result.summary.unsure_frames == 0


def test_one_recording_without_resets(tmp_path: Path) -> None:
    source = record(tmp_path / "in", session([250]), {100, 240})
    import_recording(source, tmp_path / "out")
    assert [len(one) for one in taken(tmp_path / "out")] == [84, 83, 83]


def test_several_sessions_and_other_files(tmp_path: Path) -> None:
    source = record(tmp_path / "in" / "monday", session([12] * 2), {9, 21})
    record(tmp_path / "in" / "tuesday", session([12] * 2, start=100), {9, 21})
    (tmp_path / "in" / "demos.pkl").write_bytes(pickle.dumps([1, 2]))
    result = import_recording(source.parent, tmp_path / "out")
    assert result.summary.success_frames == 4
    assert result.left_out == [("demos.pkl", "its name says neither success nor failure")]


def test_only_one_camera(tmp_path: Path) -> None:
    source = record(tmp_path / "in", session([12] * 6), {9})
    with pytest.raises(ConfigError, match=r"--camera: no camera 'front' in .*; found wrist_1"):
        import_recording(source, tmp_path / "out", ImportOptions(cameras=("front",)))


def test_pickles_that_want_to_run_something(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
            return print, ("pwned",)

    source = record(tmp_path / "in", session([12] * 2), {9})
    content = [*session([12] * 2, start=50), Evil()]
    (source / "cube_failure_images_2026.pkl").write_bytes(pickle.dumps(content))
    result = import_recording(source, tmp_path / "out")
    assert "pwned" not in capsys.readouterr().out
    assert any("was refused: loading it would use" in why for _, why in result.left_out)


def test_a_pickle_that_is_cut_short(tmp_path: Path) -> None:
    source = record(tmp_path / "in", session([12] * 200)[:2200], {9, 21, 33})
    file = next(source.glob("*failure*"))
    file.write_bytes(file.read_bytes()[:-1000])
    result = import_recording(source, tmp_path / "out")
    assert 1000 <= result.summary.frames < 2200
    ((name, why),) = result.left_out
    assert "from transition" in name
    assert "damaged" in why


def test_it_goes_on(tmp_path: Path) -> None:
    source = record(tmp_path / "in", session([12] * 6), {12 * e + 9 for e in range(6)})
    import_recording(source, tmp_path / "out")
    whole = [episode.path.read_bytes() for episode in read_episodes(tmp_path / "out")]
    for episode in read_episodes(tmp_path / "out")[2:4]:
        episode.path.unlink()
    assert import_recording(source, tmp_path / "out").written_before == 4
    assert sorted(episode.path.read_bytes() for episode in read_episodes(tmp_path / "out")) == sorted(whole)


def test_what_is_no_recording_of_classes(tmp_path: Path) -> None:
    (tmp_path / "a_success.pkl").write_bytes(pickle.dumps({"frames": []}))
    assert not pickles.Pickles.recognises(tmp_path / "a_success.pkl")
    (tmp_path / "data.pkl").write_bytes(pickle.dumps(session([3])))
    with pytest.raises(DataError, match="name says success or failure; say it by --success or --failure"):
        import_recording(tmp_path / "data.pkl", tmp_path / "out")
