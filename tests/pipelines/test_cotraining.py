"""A success classifier that goes on learning while a policy trains on it: exact, calibrated, on its own data too."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from policy_runs import SAC, history, learned, same, train, weights, without_times
from rich.console import Console

from rewardlab.cli import main
from rewardlab.config import load_config
from rewardlab.errors import ConfigError, DataError
from rewardlab.pipelines import train_reward
from rewardlab.rewards import (
    BinaryRewardClassifier,
    ResNetRewardModel,
    SuccessClassifier,
    load_success_classifier,
)

pytestmark = pytest.mark.usefixtures("without_drawing")

NAME = "binary_classifier"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier as `train-reward` leaves it, with the episodes it was trained on in data/."""
    place = tmp_path_factory.mktemp("recorded")
    shown = ["--episodes", "12", "--policy", "noisy_expert", "--out", str(place / "data")]
    assert main(["collect", "tabletop_pickcube", *shown, "env.train.image_size=[3,32,32]"]) == 0
    settings = ["reward.model.model_type=binary_classifier", "reward.model.width=4", "reward.model.hidden_dim=8"]
    settings += [f"data.data_path={place / 'data'}", "data.num_samples_per_episode=8", "runner.max_epochs=2"]
    settings += [f"runner.logger.log_path={place / 'run'}", "reward.model.num_spatial_blocks=2"]
    return train_reward.run(load_config("reward_training", settings), console=Console(quiet=True))


@pytest.fixture(scope="module")
def cotrained_run(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cotrained") / "run"
    train(out, *cotrained(recorded), "runner.max_epochs=2")
    return out


def cotrained(model: Path, *more: str) -> list[str]:
    return learned(model, "reward.cotrain=true", "reward.reward_type=continuous", *more)


def test_dropout_draws_the_same_in_a_resumed_training() -> None:
    frames = torch.randint(0, 255, (16, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        model = ResNetRewardModel("resnet10", 8, 0.5, (3, 32, 32), width=4, update_per_collect=3)
        torch.manual_seed(len(models))  # whatever else draws from the global generator
        model.collect_data({"images": frames, "success": torch.arange(16) % 2 == 0})
        model.train()
        models.append(model)
    assert same(models[0].state_dict(), models[1].state_dict())


def last_model(out: Path) -> SuccessClassifier:
    return load_success_classifier(out / "reward_models" / "last" / NAME)


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_a_resumed_run_trains_policy_and_classifier_as_if_unbroken(
    recorded: Path, tmp_path: Path, algorithm: str
) -> None:
    settings = [*cotrained(recorded), *(SAC if algorithm == "sac" else [])]
    unbroken = train(tmp_path / "unbroken", *settings, "runner.max_epochs=4")
    half = train(tmp_path / "broken", *settings, "runner.max_epochs=2")
    resumed = train(tmp_path / "broken", *settings, "runner.max_epochs=4", f"runner.resume_dir={half}")
    assert same(weights(resumed), weights(unbroken))
    assert without_times(history(tmp_path / "broken")) == without_times(history(tmp_path / "unbroken"))
    one, other = last_model(tmp_path / "broken"), last_model(tmp_path / "unbroken")
    assert same(one.state_dict(), other.state_dict())
    assert one.metrics == other.metrics


def test_threshold_and_figures_follow_the_weights(recorded: Path, cotrained_run: Path) -> None:
    before, after = load_success_classifier(recorded), last_model(cotrained_run)
    assert not same(before.network.state_dict(), after.network.state_dict())
    assert after.used_episodes == before.used_episodes
    said = (after.threshold, after.temperature, after.metrics)
    assert said != (before.threshold, before.temperature, before.metrics)
    assert after.used_episodes is not None
    held_out = after.used_episodes.find()[1]
    after.calibrate(held_out, before.metrics["target_fpr"])  # from the held-out episodes alone, as train-reward does
    assert (after.threshold, after.temperature, json.loads(json.dumps(after.metrics))) == said


def test_it_learns_from_rollouts_without_any_success(cotrained_run: Path) -> None:
    """A policy that exploits a classifier shows it failures alone: these, beside its own recorded successes."""
    rows = history(cotrained_run)
    assert [row["audit/success"] for row in rows] == [0, 0]  # five steps are too few to succeed
    assert [row["reward_model/loss"] > 0 for row in rows] == [True, True]


def test_the_frames_it_learned_from_are_those_of_its_own_training(recorded: Path) -> None:
    model = load_success_classifier(recorded)
    assert model.used_episodes is not None
    train_frames, held_out = model.used_episodes.find()
    assert len(train_frames) == 8 * len(model.used_episodes.train)
    assert not set(model.used_episodes.train) & set(model.used_episodes.validation)
    histogram = model.metrics["score_histogram"]
    assert sum(histogram["success"]) + sum(histogram["failure"]) == len(held_out)


def test_a_resumed_run_must_train_what_it_trained(recorded: Path, tmp_path: Path) -> None:
    half = train(tmp_path / "run", *cotrained(recorded), "runner.max_epochs=2")
    resume = ["runner.max_epochs=4", f"runner.resume_dir={half}"]
    with pytest.raises(ConfigError, match=r"reward\.cotrain.*saved with .*trained.*Set them as they were"):
        train(tmp_path / "run", *cotrained(recorded, "reward.cotrain=false"), *resume)
    train(tmp_path / "other", *cotrained(recorded), "runner.max_epochs=3", f"runner.resume_dir={half}")
    with pytest.raises(DataError, match="already contains a run"):  # a stage is not written over another one
        train(tmp_path / "other", *cotrained(recorded), "runner.max_epochs=4", f"runner.resume_dir={half}")


class TestMissingData:
    def test_is_an_error_before_anything_begins(self, recorded: Path, tmp_path: Path) -> None:
        model, data = moved(recorded, tmp_path)
        episode = next(data.rglob("*.safetensors"))
        episode.unlink()
        with pytest.raises(DataError, match=r"1 of the \d+ episodes .* missing or have changed, such as .*data_path"):
            train(tmp_path / "run", *cotrained(model), "runner.max_epochs=1")
        assert not (tmp_path / "run").exists()

    def test_an_episode_that_was_replaced_is_missing(self, recorded: Path, tmp_path: Path) -> None:
        model, data = moved(recorded, tmp_path)
        one, other = list(data.rglob("*.safetensors"))[:2]
        shutil.copy(one, other)
        with pytest.raises(DataError, match="1 of the"):
            train(tmp_path / "run", *cotrained(model), "runner.max_epochs=1")

    def test_moved_episodes_are_found_by_what_is_in_them(self, recorded: Path, tmp_path: Path) -> None:
        model, data = moved(recorded, tmp_path)
        data.rename(tmp_path / "elsewhere")
        with pytest.raises(DataError, match="missing or have changed"):
            train(tmp_path / "run", *cotrained(model), "runner.max_epochs=1")
        train(tmp_path / "run", *cotrained(model), "runner.max_epochs=1", f"data.data_path={tmp_path / 'elsewhere'}")

    def test_a_checkpoint_that_records_none_says_what_to_do(self, recorded: Path, tmp_path: Path) -> None:
        older = BinaryRewardClassifier(image_size=(3, 32, 32), width=4, hidden_dim=8, num_spatial_blocks=2)
        path = older.save(tmp_path / "older")
        with pytest.raises(ConfigError, match=r"does not record the episodes .*train-reward.*data\.data_path"):
            train(tmp_path / "run", *cotrained(path), "runner.max_epochs=1")
        data = recorded.parents[2] / "data"
        train(tmp_path / "run", *cotrained(path), "runner.max_epochs=1", f"data.data_path={data}")
        assert last_model(tmp_path / "run").used_episodes is not None


def moved(recorded: Path, place: Path) -> tuple[Path, Path]:
    """A copy of the model whose record names a copy of its data."""
    data, model = place / "data", place / "model"
    shutil.copytree(recorded.parents[2] / "data", data)
    shutil.copytree(recorded, model)
    config: dict[str, Any] = json.loads((model / "config.json").read_text())
    for split in ("train", "validation"):
        episodes = config["used_episodes"][split]
        config["used_episodes"][split] = {
            name.replace(str(recorded.parents[2] / "data"), str(data)): identity for name, identity in episodes.items()
        }
    (model / "config.json").write_text(json.dumps(config))
    return model, data


def test_a_run_of_an_earlier_version_says_what_to_do(recorded: Path, tmp_path: Path) -> None:
    """What its checkpoints say of reward models has another form; its policy can begin a new run."""
    last = train(tmp_path / "older", *learned(recorded), "runner.max_epochs=2")
    config = json.loads((last / "config.json").read_text())
    pairs = dict(config["state"]["pairs"])
    rewards = [["terminal_only", False], ["audit", None], ["classifier", None], ["transitions", None]]
    pairs["rewards"] = {"pairs": rewards}
    config["state"]["pairs"] = [list(pair) for pair in pairs.items()]
    (last / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"earlier version.*runner\.logger\.experiment_name"):
        train(tmp_path / "older", *learned(recorded), "runner.max_epochs=3", f"runner.resume_dir={last}")
    train(tmp_path / "newer", *learned(recorded), "runner.max_epochs=3", f"runner.resume_dir={last}")
    assert [row["iteration"] for row in history(tmp_path / "newer")] == [3]
    assert torch.is_tensor(next(iter(weights(tmp_path / "newer" / "checkpoints" / "global_step_3").values())))
