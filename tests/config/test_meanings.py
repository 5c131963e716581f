"""`rewardlab config show`: every shipped config, with the meaning of each key beside it."""

import pytest
import yaml

from rewardlab.cli import main
from rewardlab.config import config_names, load_config, show_config
from rewardlab.config.meanings import explain, key_meanings
from rewardlab.config.schema_keys import schema_keys


def test_every_key_has_a_meaning() -> None:
    meanings = key_meanings()
    assert set(meanings) == set(schema_keys())
    assert [key for key, meaning in meanings.items() if len(meaning) < 5] == []


def test_a_meaning_is_the_comment_behind_or_above_the_key_or_the_docstring_of_the_block() -> None:
    meanings = key_meanings()
    assert meanings["env.train.num_envs"] == "environments stepped as one batch"
    assert meanings["env.train.obs_mode"].startswith('What the policy sees; "proprio+images": pictures and the state')
    assert meanings["algorithm.asynchronous"].startswith("Acting and learning at the same time, each at its own pace")
    assert meanings["reward.combine_mode"].endswith("(replace | add | weighted)")
    assert meanings["cluster.workers"].startswith("how many workers a component has")


@pytest.mark.filterwarnings("ignore::rewardlab.compat.CompatibilityNote")
def test_an_explained_config_is_the_same_config() -> None:
    for name in config_names():
        text, _ = show_config(name)
        explained = explain(text)
        assert yaml.safe_load(explained) == yaml.safe_load(text), name
        assert explained.count("#") > 100


def test_texts_of_several_lines_and_with_comment_signs_stay_what_they_are() -> None:
    text = "runner:\n  logger:\n    log_path: |\n      a\n      b\n    experiment_name: 'x # y'\n"
    explained = explain(text)
    assert yaml.safe_load(explained) == yaml.safe_load(text)
    assert "directory of this run" in explained


def test_what_is_shown_can_be_saved_and_run(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    assert main(["config", "show", "tabletop_ppo_mlp", "algorithm.gamma=0.5"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 120
    (tmp_path / "mine.yaml").write_text(shown)
    assert load_config(str(tmp_path / "mine.yaml")) == load_config("tabletop_ppo_mlp", ["algorithm.gamma=0.5"])
