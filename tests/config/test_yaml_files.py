"""YAML that is no config: every kind is answered with a line that names the file, before anything is built from it."""

from pathlib import Path

import pytest

from rewardlab.cli import main
from rewardlab.config import config_names, load_config, show_config
from rewardlab.errors import ConfigError


def laughing(levels: int, item: str) -> str:
    """Nine times the line before, on every line."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([item.format(n - 1)] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("seed: é".encode("latin-1"), "line 1: found byte 0xe9, expected text in UTF-8"),
        ("\n\nseed: 1".encode("utf-16"), "line 1: found byte 0xff, expected text in UTF-8"),
        (b"seed: " + b"[" * 20_000, "line 1: blocks are more than 32 deep"),
        ("".join(" " * n + f"a{n}:\n" for n in range(300)).encode(), "blocks are more than 32 deep"),
        (b"env: &a\n  train: *a\n", r"line 2: \*a is inside of what it stands for"),
        (b"&a {seed: *a}\n", r"line 1: \*a is inside of what it stands for"),
        (laughing(9, "*a{}").encode(), "stands for more than 10,000 values, those behind aliases"),
        (laughing(9, "'${{a{}}}'").encode(), "interpolations .* lead to too many others"),
        (('a: "' + "x" * 999 + '"\nb: "' + "${a}" * 400 + '"').encode(), "more than 100,000 characters"),
        (("a: '" + "${" * 2000 + "'").encode(), "expected at most 2,000"),
        (b"x: '" + b"y" * 300_000 + b"'", "has more than 200,000 bytes"),
        (b"defaults: 3\n", "defaults: found 3, expected a list of configs to build on"),
        (b"defaults: {a: b}\n", "defaults: found .*, expected a list"),
        (b"defaults: [{1: 2}]\n", "defaults: found {1: 2} in the list"),
        (b"defaults: [[a]]\n", "defaults: found .* in the list"),
        (b"defaults: [mine, _self_]\n", "its defaults lead back to itself"),
        (b"defaults: [nope]\n", "Could not load 'nope'"),
        (b"seed: " + b"9" * 5000, "limit"),
        (b"3", "Invalid loaded object type"),
        (b"[1, 2]", "must be a DictConfig"),
        (b"null: 1", "Incompatible key type 'NoneType'"),
        (b'seed: "a\\0b"', "expected text without the character U\\+0000"),
        (b"seed: !!python/object/apply:os.system ['true']", "could not determine a constructor"),
    ],
)
def test_what_is_no_config_is_answered_in_a_line(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_config(str(file))


def test_a_file_that_defaults_name_is_checked_as_well(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [other, _self_]\n")
    (tmp_path / "other.yaml").write_text(laughing(9, "*a{}"))
    with pytest.raises(ConfigError, match=r"other.yaml, line \d+: stands for more than"):
        load_config(str(tmp_path / "mine.yaml"))


def test_a_search_path_in_a_file_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_by_hydra.py").write_text("raise SystemExit('imported')")
    (tmp_path / "mine.yaml").write_text("hydra: {searchpath: ['pkg://imported_by_hydra']}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_config(str(tmp_path / "mine.yaml")).seed == 0


def test_aliases_that_a_config_needs_work(tmp_path: Path) -> None:
    text = (
        "env:\n  train: &train {id: CartPole-v1, num_envs: 3, cameras: []}\n  eval:\n    <<: *train\n    num_envs: 2\n"
    )
    (tmp_path / "mine.yaml").write_text(text)
    cfg = load_config(str(tmp_path / "mine.yaml"))
    assert (cfg.env.eval.id, cfg.env.train.num_envs, cfg.env.eval.num_envs) == ("CartPole-v1", 3, 2)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("=1", "found no key"),
        ("seed=" + "[" * 100 + "]" * 100, "seed.*: blocks are more than 32 deep"),
        ("seed=" + "9" * 5000, "expected key=value"),
        ("seed=" + "9" * 30, "seed: found 9{30}, expected a whole number from 0 to 9223372036854775807"),
        ("seed=-1", "seed: found -1, expected a whole number from 0"),
        ("a" * 3000 + "=1", "unknown key 'aaa"),
        ("x='" + "y" * 20_000 + "'", "has 20,004 characters, expected at most 10,000"),
        ("runner.logger.log_path=", 'runner.logger.log_path: found "", expected a path; it is empty'),
        ("data.collection.save_dir=" + "x" * 300, "expected a path with names of at most 255 bytes"),
        ("data.data_path=['']", "data.data_path: .*expected a path; it is empty"),
        ("actor.threads=1000000", "actor.threads: found 1000000, expected a number of at most 1024"),
        ("runner.max_epochs=" + "9" * 30, "expected a number of at most 9007199254740992"),
    ],
)
def test_an_override_that_cannot_be_is_answered_in_a_line(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config("tabletop_pickcube", [override])


def test_a_missing_file_is_answered_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "my_run.yaml").touch()
    with pytest.raises(ConfigError, match=r"Did you mean .*my_run.yaml\?"):
        load_config(str(tmp_path / "my_runs.yaml"))
    with pytest.raises(ConfigError, match="Did you mean 'tabletop_pickcube', which comes with rewardlab"):
        load_config("no_such_place/tabletop_pickcub.yaml")


@pytest.mark.parametrize("name", ["zoo/cartpole_ppo_gail", "tabletop_ppo_mlp_resnet_reward"])
def test_a_config_that_lacks_something_can_be_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, lacking = show_config(name)
    assert lacking
    assert "rollout_steps" in text
    assert ("expert_data_path: ???" in text) == name.startswith("zoo/")
    assert main(["config", "show", name]) == 0
    assert f"note: to run it: {lacking[0]}" in capsys.readouterr().err


def test_descriptions_of_configs_are_whole_sentences() -> None:
    assert [name for name, description in config_names().items() if not description.endswith(".")] == []
