"""A classifier of each kind."""

import sys
from pathlib import Path

import pytest
import torch

from rewardlab.rewards import SuccessClassifier

sys.path.insert(0, str(Path(__file__).parent))  # for reward_toys: pytest's importlib mode adds nothing to the path

from reward_toys import make_frames, small_binary, small_resnet


@pytest.fixture(params=["resnet", "binary"])
def model(request: pytest.FixtureRequest) -> SuccessClassifier:
    torch.manual_seed(0)
    built: SuccessClassifier = small_resnet() if request.param == "resnet" else small_binary()
    built.network.train()(make_frames(16)[0])  # running statistics as after training
    built.network.eval()
    return built
