"""Cases that the fuzz harness has found, and that are mended."""

import json
from pathlib import Path
from typing import Any

import pytest
from fuzzing import Case, judge
from valid_files import write_classifier, write_episodes


def check(arguments: list[str], tmp_path: Path) -> None:
    assert judge(Case(arguments), tmp_path / "mark") is None


def test_texts_of_interpolations_of_interpolations(tmp_path: Path) -> None:
    lines = ["a0: x", *(f'a{n}: "{f"${{a{n - 1}}}" * 30}"' for n in range(1, 10))]
    (tmp_path / "mine.yaml").write_text("\n".join(lines))
    check(["config", "show", str(tmp_path / "mine.yaml")], tmp_path)


@pytest.mark.parametrize("name", [".", "/", ".."])
def test_a_directory_without_a_name_as_a_checkpoint(name: str, tmp_path: Path) -> None:
    check(["score", name, "."], tmp_path)


@pytest.mark.parametrize("value", [3, [3, [64], 64], {"a": 1}, None, "x", [10**30] * 3, []])
def test_an_image_size_of_another_type_in_a_checkpoint(value: Any, tmp_path: Path) -> None:
    write_classifier(tmp_path / "model")
    write_episodes(tmp_path / "episodes")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["architecture"]["image_size"] = value
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    check(["score", str(tmp_path / "model"), str(tmp_path / "episodes")], tmp_path)
