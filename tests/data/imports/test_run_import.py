"""The import of any kind of recording: what is recognised, options, and going on after it was stopped."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rewardlab.data import read_episodes, verify
from rewardlab.data.imports import run_import
from rewardlab.data.imports.run_import import import_recording
from rewardlab.data.imports.source import ImportOptions
from rewardlab.errors import ConfigError, DataError

NAMES = [f"{c}/ep{e}_{n}.png" for c in ("success", "failure") for e in range(6) for n in range(3)]


@pytest.fixture
def source(tmp_path: Path, write_pictures: Callable[..., Path]) -> Path:
    return write_pictures(tmp_path / "in", NAMES)


def contents(directory: Path) -> list[bytes]:
    return [episode.path.read_bytes() for episode in read_episodes(directory)]


def test_after_it_was_stopped_it_goes_on(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_recording(source, tmp_path / "whole")
    read = []

    def stop(path: Path) -> object:
        read.append(path)
        if len(read) == 15:  # in the third episode
            raise KeyboardInterrupt
        return read_image(path)

    from rewardlab.data.imports import pictures

    read_image = pictures.read_image
    monkeypatch.setattr(pictures, "read_image", stop)
    with pytest.raises(KeyboardInterrupt):
        import_recording(source, tmp_path / "out")
    assert len(read_episodes(tmp_path / "out")) == 2
    with (tmp_path / "out" / "import.jsonl").open("a") as file:
        file.write('{"number": 2, "not')  # as if the process had been killed in the middle of a line
    read.clear()
    read += [Path()] * 15
    result = import_recording(source, tmp_path / "out")
    assert result.written_before == 2
    assert len(read) - 15 == 24  # the pictures of four episodes; those that are there are not decoded again
    assert not verify(tmp_path / "out")
    strip = [b.split(b'"origin"')[0] for b in contents(tmp_path / "out")]
    assert strip == [b.split(b'"origin"')[0] for b in contents(tmp_path / "whole")]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    result = import_recording(source, tmp_path / "out")
    assert (result.written_before, result.summary.episodes) == (6, 6)


def test_a_source_that_changed_meanwhile(source: Path, tmp_path: Path) -> None:
    import_recording(source, tmp_path / "out")
    (source / "success/ep0_0.png").unlink()
    with pytest.raises(DataError, match=r"some were added, removed or changed. Import into another directory"):
        import_recording(source, tmp_path / "out")


def test_other_options(source: Path, tmp_path: Path) -> None:
    import_recording(source, tmp_path / "out")
    with pytest.raises(DataError, match='was imported with every 1, not 2; task null, not "stack"'):
        import_recording(source, tmp_path / "out", ImportOptions(every=2, task="stack"))


def test_a_directory_that_no_import_began(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep")
    with pytest.raises(DataError, match="is not empty, and no import began it"):
        import_recording(source, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_episodes_inside_of_what_is_imported(source: Path) -> None:
    with pytest.raises(DataError, match=r"is inside .*, which is imported"):
        import_recording(source, source / "success" / "out")


def test_two_imports_at_once(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(*_: object) -> None:
        monkeypatch.undo()
        import_recording(source, tmp_path / "out")

    monkeypatch.setattr(run_import.Journal, "open", again)
    with pytest.raises(DataError, match=r"an import of this process is writing to .*out. Wait until it ends"):
        import_recording(source, tmp_path / "out")


def test_what_is_not_recognised(tmp_path: Path, source: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("a.txt", "b.txt", "c.bin"):
        (other / name).write_bytes(b"?")
    with pytest.raises(DataError, match=r"(?s)not a recording.*folders of pictures: .*videos: .*found 2 .txt, 1 .bin"):
        import_recording(other, tmp_path / "out")
    with pytest.raises(DataError, match="does not exist; expected a recording"):
        import_recording(tmp_path / "nowhere", tmp_path / "out")
    import_recording(source, tmp_path / "out")
    with pytest.raises(DataError, match="holds episodes already: rewardlab train-reward --data"):
        import_recording(tmp_path / "out", tmp_path / "again")


def test_options_without_meaning_are_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--align has no meaning for folders of pictures; it takes --camera, --every"):
        import_recording(source, tmp_path / "out", ImportOptions(align="next"))
    with pytest.raises(ConfigError, match="--camera: found a, b, but the source has one camera"):
        import_recording(source, tmp_path / "out", ImportOptions(cameras=("a", "b")))


def test_nothing_that_can_be_used_leaves_nothing_behind(tmp_path: Path, write_pictures: Callable[..., Path]) -> None:
    source = write_pictures(tmp_path / "in", NAMES)
    for file in source.rglob("*.png"):
        file.write_bytes(file.read_bytes()[:60])
    with pytest.raises(DataError, match=r"no episode of it can be used|none of its pictures can be read"):
        import_recording(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_journal_says_where_episodes_are_from(source: Path, tmp_path: Path) -> None:
    import_recording(source, tmp_path / "out")
    header = json.loads((tmp_path / "out" / "import.jsonl").read_text().splitlines()[0])
    assert header["source"] == str(source)
    assert "by the beginning of their names" in header["grouping"]
