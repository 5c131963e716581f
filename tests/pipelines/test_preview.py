"""What a run says before it begins, and when it does not begin."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from rewardlab.config import load_config
from rewardlab.errors import ConfigError
from rewardlab.figures.metrics import FrameScores
from rewardlab.figures.trust import assess
from rewardlab.pipelines.preview import announce


def checkpoint(directory: Path, *, recognised: int) -> Path:
    """A checkpoint whose classifier recognises so many of the last 4 frames of 12 episodes, measured on all of them."""
    episode, time = np.repeat(np.arange(12), 10), np.tile(np.arange(10), 12)
    label = time >= 6
    logit = np.where(label, np.where(time < 6 + recognised, 4.0, -8.0), -4.0) + 0.01 * time
    metrics = assess(FrameScores(episode, time, label, logit, tuple(map(str, range(12))))).to_json()
    directory.mkdir()
    config = {"model_type": "resnet_reward", "architecture": {}, "metrics": metrics}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def said(name: str, **overrides: Any) -> str:
    console = Console(file=io.StringIO(), width=200, quiet=False)
    announce(load_config(name, [f"{key}={value}" for key, value in overrides.items()]), console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


LEARNED = "tabletop_ppo_mlp_resnet_reward"
PATH = "reward.model.checkpoint_path"


def test_a_run_on_a_learned_reward_says_what_its_classifier_is_worth(tmp_path: Path) -> None:
    text = said(LEARNED, **{PATH: checkpoint(tmp_path / "good", recognised=4), "env.train.num_envs": 10})
    assert text.splitlines()[:3] == [
        "task: train a policy on tabletop/PickCube",
        "algorithm: ppo in 10 environments, up to 25,000 steps in all (runner.max_epochs=100)",
        f"reward: {tmp_path / 'good'}, per_step, replace",
    ]
    assert "  false positives: 0 % [0, 22.1] of failure frames are called success\n" in text
    assert "  recall: 100 % " in text
    assert "  measured on: 12 held-out episodes, 12 with success ([]: 95 %)\n" in text
    assert text.splitlines()[-1] == f"results: runs/{LEARNED}"


def test_a_classifier_that_recognises_next_to_nothing_stops_the_run(tmp_path: Path) -> None:
    blind = checkpoint(tmp_path / "blind", recognised=0)
    with pytest.raises(ConfigError, match=r"less than reward\.min_recall=0\.1.*with reward\.min_recall=0"):
        said(LEARNED, **{PATH: blind})
    assert "results: " in said(LEARNED, **{PATH: blind, "reward.min_recall": 0})


@pytest.mark.parametrize(
    "told", [{"reward.reward_threshold": 0.2}, {"reward.reward_type": "continuous"}, {"reward.cotrain": True}]
)
def test_it_does_not_where_the_stored_threshold_does_not_decide(tmp_path: Path, told: dict[str, Any]) -> None:
    assert "results: " in said(LEARNED, **{PATH: checkpoint(tmp_path / "blind", recognised=0), **told})


def test_a_checkpoint_without_figures_is_called_unknown(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "unmeasured", recognised=4)
    (path / "config.json").write_text('{"model_type": "rnd", "architecture": {}, "metrics": {"loss": 1.0}}')
    assert "its figures: not known: the checkpoint has none" in said(LEARNED, **{PATH: path})


def test_other_tasks_say_what_they_do(tmp_path: Path) -> None:
    assert "reward: the environment's own (dense)" in said("tabletop_ppo_mlp")
    text = said("tabletop_pickcube", **{"data.collection.episodes": 2000, "data.collection.save_dir": "data/here"})
    assert "task: collect 2,000 episodes of tabletop/PickCube with the policy noisy_expert" in text
    assert "results: data/here" in text
    text = said("reward_training", **{"data.data_path": tmp_path})
    assert "task: train a success classifier (resnet_reward) for up to 30 epochs" in text
