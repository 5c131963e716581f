"""Videos: which frames with which labels, in which episodes, and videos that are not whole."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rewardlab.data import StoredEpisode, read_episodes
from rewardlab.data import video as video_file
from rewardlab.data.imports import videos
from rewardlab.data.imports.picture_size import PictureSize
from rewardlab.data.imports.run_import import Imported, import_recording
from rewardlab.data.imports.source import ImportOptions
from rewardlab.errors import ConfigError, DataError

av = pytest.importorskip("av")
Write = Callable[..., Path]


def numbers(episode: StoredEpisode) -> list[int]:
    """Return the numbers of the frames of an episode in its video, as their stripes tell them."""
    frames = episode.load().columns["observation.images.base_camera"]
    stripes = frames.mean(axis=(1, 3)).reshape(len(frames), 8, -1).mean(axis=2)
    return [int(number) for number in np.packbits(stripes > 120, axis=1)[:, 0]]


def labels(place: Path, text: str) -> Path:
    place.write_text("video,start,end,label\n" + text, encoding="utf-8")
    return place


def run(source: Path, out: Path, csv: Path | None = None, **options: object) -> tuple[Imported, list[StoredEpisode]]:
    result = import_recording(source, out, ImportOptions(labels=csv, **options))  # type: ignore[arg-type]
    stored = read_episodes(out)
    return result, sorted(stored, key=lambda episode: episode.origin.number if episode.origin else -1)


@pytest.mark.parametrize(
    ("suffix", "codec"), [(".mp4", "libx264"), (".mkv", "libx264"), (".avi", "mpeg4"), (".webm", "vp9")]
)
def test_each_frame_gets_the_label_of_its_time(tmp_path: Path, write_video: Write, suffix: str, codec: str) -> None:
    """Two attempts in 8 s: an episode each, cut where the first success is over."""
    video = write_video(tmp_path / f"a{suffix}", 80, codec=codec)
    csv = labels(tmp_path / "l.csv", f"a{suffix},2.0,3.0,success\na{suffix},0:06.5,,success\n")
    result, (first, second) = run(video, tmp_path / "out", csv)
    assert [numbers(first), numbers(second)] == [list(range(30)), list(range(30, 80))]
    assert np.flatnonzero(first.labels()).tolist() == list(range(20, 30))
    assert np.flatnonzero(second.labels()).tolist() == list(range(35, 50))
    assert result.summary.unsure_frames == 0
    assert "outside of the ranges: failure (--rest success|failure|unsure)" in result.remarks


def test_three_states_and_the_rest(tmp_path: Path, write_video: Write) -> None:
    video = write_video(tmp_path / "a.mp4", 40)
    csv = labels(tmp_path / "l.csv", "a.mp4,1,2,success\na.mp4,2,2.5,unsure\na.mp4,3,3.5,failure\n")
    result, (first, second) = run(video, tmp_path / "out", csv)
    # Where failures are given too, what nobody labelled is unsure.
    assert np.flatnonzero(first.labels()).tolist() == list(range(10, 20))
    assert np.flatnonzero(first.unsure()).tolist() == [*range(10), *range(20, 30)]
    assert (len(first.labels()), second.unsure().tolist()) == (30, [False] * 5 + [True] * 5)
    result, _ = run(video, tmp_path / "rest", csv, rest="failure")
    assert (result.summary.success_frames, result.summary.failure_frames, result.summary.unsure_frames) == (10, 25, 5)


def test_frames_beside_a_change_are_unsure_if_wanted(tmp_path: Path, write_video: Write) -> None:
    csv = labels(tmp_path / "l.csv", "a.mp4,2,3,success\n")
    _, stored = run(write_video(tmp_path / "a.mp4", 40), tmp_path / "out", csv, unsure_seconds=0.25)
    unsure = np.concatenate([episode.unsure() for episode in stored])
    assert np.flatnonzero(unsure).tolist() == [18, 19, 20, 21, 22, 28, 29, 30, 31, 32]


def test_without_labels_every_frame_is_unsure(tmp_path: Path, write_video: Write) -> None:
    result, (episode,) = run(write_video(tmp_path / "a.mp4", 20), tmp_path / "out")
    assert episode.unsure().all()
    assert any("--labels FILE.csv says when success is" in remark for remark in result.remarks)


def test_videos_that_are_named_as_a_whole(tmp_path: Path, write_video: Write) -> None:
    for name in ("good/a", "bad/b", "bad/c"):
        write_video(tmp_path / "in" / f"{name}.mp4", 10)
    write_video(tmp_path / "in" / "failure/d.mp4", 10)
    result, _ = run(tmp_path / "in", tmp_path / "out", success=("good",), failure=("b", "bad"))
    assert (result.summary.success_frames, result.summary.failure_frames, result.summary.unsure_frames) == (10, 20, 10)
    assert any("a folder failure does not label its videos" in remark for remark in result.remarks)


def test_a_directory_of_videos(tmp_path: Path, write_video: Write) -> None:
    """Names are compared, never opened; a video without a row is not taken for one without success."""
    for name in ("Übung 1.mp4", "day 2/take.mp4", "other.mp4"):
        write_video(tmp_path / "in" / name, 20)
    (tmp_path / "in" / "notes.txt").write_text("?")
    # The first name as macOS writes it.
    csv = labels(tmp_path / "l.csv", "U\u0308bung 1.mp4,1,,success\ntake,0.5,1,success\n")
    result, stored = run(tmp_path / "in", tmp_path / "out", csv)
    assert [int(episode.labels().sum()) for episode in stored] == [5, 0, 0, 10]
    assert [int(episode.unsure().sum()) for episode in stored] == [0, 0, 20, 0]
    assert any("unsure, as l.csv does not name them: other.mp4" in remark for remark in result.remarks)
    assert result.left_out == [("notes.txt", "not a video")]
    labels(csv, "../in/other.mp4,1,2,success\n")
    with pytest.raises(DataError, match=r"line 2: no video '../in/other.mp4'; found day 2/take.mp4, other.mp4"):
        run(tmp_path / "in", tmp_path / "again", csv)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("a.mp4,70,80,success", r"l.csv, line 2: begins at 70 s, but a.mp4 ends at 2.0 s"),
        ("a.mp4,1,0:00.5,success", "ends at 0.5 s, before it begins at 1 s"),
        ("a.mp4,1,2,succes", "label 'succes'; expected success, failure, unsure"),
        ("a.mp4,one,2,success", r"start 'one'; expected seconds \(72.5\) or minutes \(1:12.5\)"),
        ("b.mp4,1,2,success", "no video 'b.mp4'; found a.mp4; did you mean 'a.mp4'"),
        ("a.mp4,0,1,success\na.mp4,0.5,2,failure", "line 3: failure from 0.5 s, but .* line 2 says success until 1 s"),
        ("", "has no ranges; expected lines of video,start,end,label"),
    ],
)
def test_wrong_ranges(tmp_path: Path, write_video: Write, row: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        run(write_video(tmp_path / "a.mp4", 20), tmp_path / "out", labels(tmp_path / "l.csv", row))
    assert not (tmp_path / "out").exists()


def test_a_range_that_ends_behind_its_video(tmp_path: Path, write_video: Write) -> None:
    csv = labels(tmp_path / "l.csv", "a.mp4,1,9,success\n")
    result, (episode,) = run(write_video(tmp_path / "a.mp4", 20), tmp_path / "out", csv)
    assert int(episode.labels().sum()) == 10
    assert result.left_out == [(f"{csv}, line 2", "ends at 9 s, but a.mp4 ends at 2.0 s")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("l.csv", "\ufeffVideo;Start;End;Label\na.mp4;1,0;2,0;success\n"),
        ("l.csv", "start\tend\tlabel\n1\t2\tsuccess\n"),
        ("l.csv", "video;start;end;label\r\na.mp4;0:01;0:02;success\r\n"),
        ("l.json", '[{"start": 1, "end": 2.0, "label": "success"}]'),
        ("l.json", '{"a.mp4": [{"start": "0:01", "end": "0:00:02", "label": "Success"}]}'),
    ],
)
def test_other_forms_of_ranges(tmp_path: Path, write_video: Write, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    _, (episode, rest) = run(write_video(tmp_path / "a.mp4", 30), tmp_path / "out", tmp_path / name)
    assert episode.labels().tolist() == [False] * 10 + [True] * 10
    assert not rest.labels().any()


def test_ranges_in_the_unicode_text_of_a_spreadsheet(tmp_path: Path, write_video: Write) -> None:
    (tmp_path / "l.csv").write_text("video\tstart\tend\tlabel\r\na.mp4\t1\t2\tsuccess\r\n", encoding="utf-16")
    _, (episode, _) = run(write_video(tmp_path / "a.mp4", 30), tmp_path / "out", tmp_path / "l.csv")
    assert episode.labels().sum() == 10


def test_a_long_video_is_cut_and_a_success_is_torn_last(
    tmp_path: Path, write_video: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(videos, "frames_of_a_block", lambda size: 25)
    csv = labels(tmp_path / "l.csv", "a.mp4,7,8,success\n")
    _, stored = run(write_video(tmp_path / "a.mp4", 100), tmp_path / "out", csv)
    assert [numbers(episode) for episode in stored] == [
        list(range(5)), list(range(5, 30)), list(range(30, 55)), list(range(55, 80)), list(range(80, 100)),
    ]  # fmt: skip
    assert [int(episode.labels().sum()) for episode in stored] == [0, 0, 0, 10, 0]


def test_it_goes_on_in_the_middle_of_a_video(
    tmp_path: Path, write_video: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(videos, "frames_of_a_block", lambda size: 10)
    video = write_video(tmp_path / "a.mkv", 100)
    _, whole = run(video, tmp_path / "out", every=2)
    before = [(numbers(episode), episode.digest) for episode in whole]
    whole[3].path.unlink()
    decoded = []
    pixels = video_file.TimedFrame.pixels
    monkeypatch.setattr(video_file.TimedFrame, "pixels", lambda timed: decoded.append(timed.time) or pixels(timed))
    result, again = run(video, tmp_path / "out", every=2)
    assert result.written_before == len(whole) - 1
    assert [(numbers(episode), episode.digest) for episode in again] == before
    assert [round(time, 1) for time in decoded] == [6.0 + 0.2 * k for k in range(10)]


def test_a_video_that_ends_early(tmp_path: Path, write_video: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be read is kept; the summary says how much is missing."""
    monkeypatch.setattr(videos, "frames_of_a_block", lambda size: 40)
    video = write_video(tmp_path / "a.avi", 100, codec="mjpeg")
    whole = video.read_bytes()
    video.write_bytes(whole[: int(len(whole) * 0.6)])
    result, stored = run(video, tmp_path / "out")
    found = [number for episode in stored for number in numbers(episode)]
    assert found == list(range(len(found)))
    assert 40 < len(found) < 80
    assert len(result.left_out) + len(result.dropped) >= 1
    assert any("ends early" in why for _, why in result.left_out + result.dropped)


def test_an_mp4_that_was_not_finished(tmp_path: Path, write_video: Write) -> None:
    video = write_video(tmp_path / "in" / "a.mp4", 100)
    write_video(tmp_path / "in" / "b.mp4", 20)
    video.write_bytes(video.read_bytes()[: video.stat().st_size // 2])
    result, (episode,) = run(tmp_path / "in", tmp_path / "out")
    assert len(episode.labels()) == 20
    ((name, why),) = result.left_out
    assert name == "a.mp4"
    assert "a recording that was not finished cannot be read" in why


def test_a_video_that_changes_its_frame_size(tmp_path: Path, write_video: Write) -> None:
    """As a camera that was switched, written as one transport stream."""
    first, second = (write_video(tmp_path / f"{size[0]}.ts", 20, size) for size in ((48, 64), (96, 128)))
    video = tmp_path / "a.ts"
    video.write_bytes(first.read_bytes() + second.read_bytes())
    result, stored = run(video, tmp_path / "out")
    assert [number for episode in stored for number in numbers(episode)] == list(range(20))
    said = " ".join(why for _, why in result.left_out + result.dropped)
    assert "changes its frame size from 48x64 to 96x128" in said
    _, stored = run(video, tmp_path / "all", size=PictureSize(wanted=(24, 32)))
    assert sum(len(episode.labels()) for episode in stored) > 20


def test_videos_of_several_sizes(tmp_path: Path, write_video: Write) -> None:
    write_video(tmp_path / "in/a.mp4", 10, (48, 64))
    write_video(tmp_path / "in/b.mp4", 10, (96, 64))
    with pytest.raises(DataError, match=r"a.mp4 is 48x64, .*b.mp4 is 96x64.* --size 48x64 resizes"):
        run(tmp_path / "in", tmp_path / "out")
    result, _ = run(tmp_path / "in", tmp_path / "out", size=PictureSize(wanted=(48, 64)))
    assert result.summary.cameras == {"base_camera 48x64": 2}


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "is empty"), (b"#EXTM3U\nhttp://localhost/x.ts\n", "not a video"), (b"\0" * 999, "not a video")],
)
def test_files_that_are_called_videos(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a.mp4").write_bytes(content)
    with pytest.raises(DataError, match=f"no video can be read.*{words}"):
        run(tmp_path / "a.mp4", tmp_path / "out")


def test_videos_without_frames(tmp_path: Path, write_video: Write) -> None:
    with av.open(str(tmp_path / "sound.mp4"), "w") as container:
        stream = container.add_stream("aac", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    with pytest.raises(DataError, match="has no pictures; found audio in it"):
        run(tmp_path / "sound.mp4", tmp_path / "out")
    empty = write_video(tmp_path / "none.mkv", 1)
    content = empty.read_bytes()
    empty.write_bytes(content[: content.index(b"\x1f\x43\xb6\x75")])  # the header, and no cluster of frames
    with pytest.raises(DataError, match=r"without frames|is damaged|does not say how many"):
        run(empty, tmp_path / "out")


def test_a_video_of_a_telephone_held_upright(
    tmp_path: Path, write_video: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A telephone writes frames as its chip sees them, and how they must be turned."""
    video = write_video(tmp_path / "a.mp4", 3)
    content = video.read_bytes()
    identity = b"".join(n.to_bytes(4, "big") for n in (65536, 0, 0, 0, 65536, 0, 0, 0, 2**30))
    quarter = b"".join((n % 2**32).to_bytes(4, "big") for n in (0, 65536, 0, -65536, 0, 0, 0, 0, 2**30))
    track = content.index(b"tkhd")
    place = content.index(identity, track)
    video.write_bytes(content[:place] + quarter + content[place + len(quarter) :])
    _, (episode,) = run(video, tmp_path / "out")
    assert episode.facts.cameras == {"base_camera": (64, 48)}


def test_links_out_of_the_directory(tmp_path: Path, write_video: Write) -> None:
    write_video(tmp_path / "in/a.mp4", 10)
    shutil.copy(tmp_path / "in/a.mp4", tmp_path / "secret.mp4")
    (tmp_path / "in/b.mp4").symlink_to(tmp_path / "secret.mp4")
    result, stored = run(tmp_path / "in", tmp_path / "out")
    assert len(stored) == 1
    assert result.left_out == [("b.mp4", "a link that leads out of the directory; not followed")]


def test_without_pyav_the_command_that_installs_it(
    tmp_path: Path, write_video: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_video(tmp_path / "in/a.mp4", 10)
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(ConfigError, match=r"PyAV, which is not installed .*: pip install 'rewardlab\[import\]'"):
        run(tmp_path / "in", tmp_path / "out")


def test_a_camera_needs_a_name(tmp_path: Path, write_video: Write) -> None:
    with pytest.raises(ConfigError, match="--camera: found an empty name"):
        import_recording(write_video(tmp_path / "a.mp4", 10), tmp_path / "out", ImportOptions(cameras=("",)))
