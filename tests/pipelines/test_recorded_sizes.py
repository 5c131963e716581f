"""A classifier that was trained on frames of one size scores frames of that size, whatever the policy looks at."""

from pathlib import Path
from typing import Any

import pytest
import torch
from policy_runs import SAC, learned, train

from rewardlab.models.image_preprocessor import ImagePreprocessor
from rewardlab.rewards import ResNetRewardModel

pytestmark = pytest.mark.usefixtures("without_drawing")


@pytest.fixture(scope="module")
def recorded_at_48(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    classifier = ResNetRewardModel("resnet10", image_size=(3, 24, 24), width=4, hidden_dim=8)
    classifier.set_frame_sizes({"base_camera": (48, 48)})
    classifier.threshold = 0.5
    return classifier.save(tmp_path_factory.mktemp("model") / "best_model")


@pytest.fixture
def scored_sizes(monkeypatch: pytest.MonkeyPatch) -> set[tuple[int, ...]]:
    """The heights and widths of all frames that reach a classifier."""
    found: set[tuple[int, ...]] = set()
    prepare = ImagePreprocessor._prepare

    def watched(self: ImagePreprocessor, array: Any, *rest: Any) -> Any:
        found.add(tuple(array.shape[1:3]))
        return prepare(self, array, *rest)

    monkeypatch.setattr(ImagePreprocessor, "_prepare", watched)
    return found


@pytest.mark.parametrize(
    "settings",
    [
        ["reward.reward_mode=per_step"],
        ["reward.reward_mode=terminal", "reward.model.ends_episode=true"],
        ["env.train.obs_mode=state+images", "actor.model.kind=cnn", "reward.model.ends_episode=true"],
        [*SAC, "env.train.obs_mode=state+images", "actor.model.kind=cnn", "reward.relabel=sample"],
    ],
    ids=["per_step", "ends_episode", "pictures", "stored"],
)
def test_the_built_in_task_draws_the_recorded_size(
    recorded_at_48: Path, tmp_path: Path, scored_sizes: set[tuple[int, ...]], settings: list[str]
) -> None:
    """The policy sees 32x32. Frames of that size were scored, which the network has never seen: a warning said so."""
    train(tmp_path / "run", *learned(recorded_at_48), "runner.max_epochs=2", *settings)
    assert scored_sizes == {(48, 48)}
