"""Makes the modules beside the tests importable (pytest's importlib mode adds nothing to the path); a classifier."""

import sys
from pathlib import Path

import pytest
import torch

from rewardlab.rewards import BinaryRewardClassifier

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a small classifier with random weights."""
    torch.manual_seed(0)
    classifier = BinaryRewardClassifier(image_size=(3, 32, 32), width=4, hidden_dim=8, num_spatial_blocks=2)
    return classifier.save(tmp_path_factory.mktemp("model") / "best_model")
