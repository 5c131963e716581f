"""The page on Python works as printed, from the first block to the last."""

import re
from pathlib import Path

import pytest

import rewardlab

PAGE = (Path(__file__).parent.parent / "docs" / "python.md").read_text()


@pytest.mark.usefixtures("without_drawing")
def test_the_page_on_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.+?)^```", PAGE, re.MULTILINE | re.DOTALL):
        exec(block, names)

    assert len(rewardlab.read_episodes("data/squares")) == 12
    assert "At threshold" in capsys.readouterr().out
    assert names["action"].shape == (2, 4)  # type: ignore[attr-defined]


def test_every_name_and_attribute_of_the_page_exists() -> None:
    names = set(re.findall(r"`rewardlab\.(\w+)`", PAGE)) - {"rewards"}
    assert names <= set(rewardlab.__all__)
    assert len(names) >= 7
    attributes = set(re.findall(r"`model\.(\w+)`", PAGE))
    assert attributes - {"classifier"} <= set(dir(rewardlab.SuccessModel))
