"""Folders of pictures: classes, groups, sizes, and files that are not what they seem."""

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rewardlab.data import read_episodes
from rewardlab.data.images import read_image
from rewardlab.data.imports.picture_size import PictureSize
from rewardlab.data.imports.run_import import import_recording
from rewardlab.data.imports.source import ImportOptions
from rewardlab.errors import ConfigError, DataError
from rewardlab.frame_sizes import FrameSize, resize_frames, resize_picture

Write = Callable[..., Path]


def episode_names(episodes: int = 8, pictures: int = 6) -> list[str]:
    """Return names of pictures of episodes that fail in the first half and succeed in the second."""
    halves = [("failure", 0), ("success", 1)]
    numbers = range(pictures // 2)
    return [f"{c}/ep{e}_{h * len(numbers) + n:04d}.png" for e in range(episodes) for c, h in halves for n in numbers]


def test_pictures_come_out_as_they_went_in(tmp_path: Path, write_pictures: Write) -> None:
    names = episode_names()
    source = write_pictures(tmp_path / "in", [*names, "unsure/ep3_0009.png"])
    result = import_recording(source, tmp_path / "out", ImportOptions(task="stack", cameras=("wrist",)))
    assert "8 episodes by the beginning of their names" in result.grouping
    assert (result.summary.success_frames, result.summary.failure_frames, result.summary.unsure_frames) == (24, 24, 1)
    stored = read_episodes(tmp_path / "out")
    assert [episode.facts.task for episode in stored] == ["stack"] * 8
    assert stored[3].labels().tolist() == [False] * 3 + [True] * 3 + [False]
    assert stored[3].unsure().tolist() == [False] * 6 + [True]
    order = [f"failure/ep3_000{n}.png" for n in range(3)] + [f"success/ep3_000{n}.png" for n in range(3, 6)]
    for t, name in enumerate([*order, "unsure/ep3_0009.png"]):
        assert np.array_equal(stored[3].frame("wrist", t), read_image(source / name))


def test_numbers_count_as_people_count(tmp_path: Path, write_pictures: Write) -> None:
    source = write_pictures(
        tmp_path / "in", [f"{c}/e{e}_{n}.png" for c in ("success", "failure") for e in range(6) for n in range(12)]
    )
    import_recording(source, tmp_path / "out")
    first = read_episodes(tmp_path / "out")[0]
    frames = [read_image(source / c / f"e0_{n}.png") for n in range(12) for c in ("failure", "success")]
    assert {first.frame("base_camera", t).tobytes() for t in (4, 5)} == {frames[4].tobytes(), frames[5].tobytes()}


def test_folders_as_the_command_line_names_them(tmp_path: Path, write_pictures: Write) -> None:
    source = write_pictures(
        tmp_path / "in", [n.replace("success", "ok").replace("failure", "not yet") for n in episode_names()]
    )
    with pytest.raises(DataError, match=r"no folder that is called success or failure; found not yet, ok. Name them"):
        import_recording(source, tmp_path / "out")
    with pytest.raises(ConfigError, match=r"--success: .* has no folder 'okay' with pictures; found not yet, ok"):
        import_recording(source, tmp_path / "out", ImportOptions(success=("okay",)))
    result = import_recording(source, tmp_path / "out", ImportOptions(success=("ok",), failure=("not yet",)))
    assert (result.summary.success_frames, result.summary.failure_frames) == (24, 24)


def test_other_names_of_the_classes_unless_there_are_two(tmp_path: Path, write_pictures: Write) -> None:
    source = write_pictures(
        tmp_path / "in", [n.replace("success", "Positive").replace("failure", "fail") for n in episode_names()]
    )
    assert import_recording(source, tmp_path / "out").summary.success_frames == 24
    write_pictures(source, ["negative/ep0_0001.png"])
    with pytest.raises(DataError, match="has the folders fail, negative; say which shows it by --failure"):
        import_recording(source, tmp_path / "other")


@pytest.mark.parametrize(
    ("names", "words", "count"),
    [
        (
            [f"{c}/run{e}/{n:02d}.png" for e in range(6) for c in ("success", "failure") for n in range(3)],
            "by their folders",
            6,
        ),
        (
            [f"run{e}/{c}/{n:02d}.png" for e in range(6) for c in ("success", "failure") for n in range(3)],
            "by their folders",
            6,
        ),
        ([f"{c}/{n:04d}.png" for c in ("success", "failure") for n in range(40)], "by their order alone", 20),
        ([f"{c}/{c}_{n:04d}.png" for c in ("success", "failure") for n in range(40)], "by their order alone", 20),
        (
            [f"{c}/{zlib.crc32(f'{c} {n}'.encode()):x}z.png" for c in ("success", "failure") for n in range(40)],
            "by their order alone",
            20,
        ),
    ],
    ids=["folders", "folders of folders", "numbers", "one prefix", "random names"],
)
def test_what_belongs_together(tmp_path: Path, write_pictures: Write, names: list[str], words: str, count: int) -> None:
    result = import_recording(write_pictures(tmp_path / "in", names), tmp_path / "out")
    assert words in result.grouping
    assert result.summary.episodes == count
    assert result.summary.frames == len(names)


def test_pauses_between_pictures_tell_episodes_apart(tmp_path: Path, write_pictures: Write) -> None:
    source = write_pictures(tmp_path / "in", [f"{c}/{n:04d}.png" for c in ("success", "failure") for n in range(40)])
    for name in ("failure", "success"):
        for n in range(40):
            time = 1e9 + 100 * (n // 5) + n % 5 + (0.5 if name == "success" else 0)
            os.utime(source / name / f"{n:04d}.png", (time, time))
    result = import_recording(source, tmp_path / "out")
    assert "8 episodes by time: a pause of 5 s" in result.grouping
    assert [len(episode.labels()) for episode in read_episodes(tmp_path / "out")] == [10] * 8


def test_several_sizes(tmp_path: Path, write_pictures: Write) -> None:
    source = write_pictures(tmp_path / "in", episode_names())
    write_pictures(source, ["success/ep3_0004.png"], size=(24, 16))
    with pytest.raises(DataError, match=r"ep0_0000.png is 12x16, .*ep3_0004.png is 24x16.* --size 12x16 resizes"):
        import_recording(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    result = import_recording(source, tmp_path / "out", ImportOptions(size=PictureSize(wanted=(8, 10))))
    assert result.summary.cameras == {"base_camera 8x10": 8}
    assert result.remarks == ["pictures resized from 12x16 to 8x10"]


@pytest.mark.parametrize("recorded", [(480, 640), (720, 1280), (1080, 1920), (1920, 1080), (480, 848)])
def test_large_pictures_are_reduced_as_a_model_reduces_them(recorded: tuple[int, int]) -> None:
    """What is trained on them may be given pictures of the recorded size; it sees the same, but for rounding."""
    size = PictureSize().of(recorded)
    assert 128 <= min(size) < 160
    rng = np.random.default_rng(0)
    frame = np.kron(rng.integers(0, 255, (recorded[0] // 8, recorded[1] // 8, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    frame = np.pad(frame, [(0, recorded[0] - frame.shape[0]), (0, recorded[1] - frame.shape[1]), (0, 0)])
    seen = resize_frames(frame[None], FrameSize(*size), "base_camera")[0]
    assert np.abs(seen.astype(int) - resize_picture(frame, size)).max() <= 1
    assert PictureSize(original=True).of(recorded) == recorded


def test_damaged_files_are_named_and_counted(tmp_path: Path, write_pictures: Write) -> None:
    source = write_pictures(tmp_path / "in", episode_names())
    whole = (source / "success/ep1_0003.png").read_bytes()
    (source / "success/ep1_0003.png").write_bytes(whole[:-200])  # its header is fine
    (source / "success/ep2_0004.png").write_bytes(b"no picture")
    (source / "failure/notes.txt").write_text("the light was off")
    result = import_recording(source, tmp_path / "out")
    assert result.summary.frames == 46
    left_out = dict(result.left_out)
    assert left_out.keys() == {"success/ep1_0003.png", "success/ep2_0004.png", "failure/notes.txt"}
    assert "damaged or not a picture" in left_out["success/ep1_0003.png"]
    assert import_recording(source, tmp_path / "out").left_out == result.left_out  # told again, though nothing is done


def test_one_class_only(tmp_path: Path, write_pictures: Write) -> None:
    source = write_pictures(tmp_path / "in", [name for name in episode_names() if "success" in name])
    summary = import_recording(source, tmp_path / "out").summary
    assert (summary.success_frames, summary.failure_frames) == (24, 0)


def test_odd_names(tmp_path: Path, write_pictures: Write) -> None:
    names = [name.replace("ep", "Übung mit ../Gröẞe…").replace("../", "..%2f") for name in episode_names()]
    names += [f"success/[bold]-rf *; $(echo)_{n}.png" for n in range(4)]
    result = import_recording(write_pictures(tmp_path / "ein Ordner/mit Lücken", names), tmp_path / "out")
    assert result.summary.frames == len(names)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["failure", "import.jsonl", "success"]


def test_links_that_lead_out_are_not_followed(tmp_path: Path, write_pictures: Write) -> None:
    source = write_pictures(tmp_path / "in", episode_names())
    outside = write_pictures(tmp_path / "secret", ["success/other_0001.png"])
    (source / "success/ep0_0100.png").symlink_to(outside / "success/other_0001.png")
    (source / "success/more").symlink_to(outside / "success")
    (source / "success/ep0_0101.png").symlink_to(source / "success/ep0_0003.png")
    (source / "success/ep0_0102.png").symlink_to(source / "success/ep0_0102.png")
    result = import_recording(source, tmp_path / "out")
    assert result.summary.frames == 49  # the link within the directory is one more
    assert [name for name, why in result.left_out if "not followed" in why] == ["success/ep0_0100.png", "success/more"]


def test_decompression_bombs_are_refused_before_they_are_decoded(tmp_path: Path, write_pictures: Write) -> None:
    source = write_pictures(tmp_path / "in", episode_names())

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    bomb = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(10**6)))
        + chunk(b"IEND", b"")
    )
    (source / "success/ep0_0099.png").write_bytes(bomb)
    result = import_recording(source, tmp_path / "out")
    assert result.summary.frames == 48
    assert "60000 x 60000 pixels, more than the limit" in dict(result.left_out)["success/ep0_0099.png"]


def test_every_second_picture(tmp_path: Path, write_pictures: Write) -> None:
    source = write_pictures(tmp_path / "in", episode_names())
    assert import_recording(source, tmp_path / "out", ImportOptions(every=2)).summary.frames == 24


def test_grey_and_transparent_pictures(tmp_path: Path, write_pictures: Write) -> None:
    source = write_pictures(tmp_path / "in", episode_names())
    Image.new("L", (16, 12), 7).save(source / "success/ep0_0090.png")
    Image.new("RGBA", (16, 12), (7, 8, 9, 0)).save(source / "success/ep0_0091.png")
    import_recording(source, tmp_path / "out")
    first = read_episodes(tmp_path / "out")[0]
    assert first.frame("base_camera", -2)[0, 0].tolist() == [7, 7, 7]
    assert first.frame("base_camera", -1)[0, 0].tolist() == [7, 8, 9]
