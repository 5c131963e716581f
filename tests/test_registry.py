"""Names of a user's own modules; and names out of files, which must never be imported."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rewardlab.config import load_config
from rewardlab.envs import make_vec_env
from rewardlab.envs.policies import POLICIES, make_policy
from rewardlab.errors import ConfigError, RewardlabError
from rewardlab.rewards import create_reward_model, load_reward_model
from rewardlab.rewards.base import REWARD_MODELS
from rewardlab.rewards.loading import named_models

OWN = """
import numpy as np

from rewardlab.envs.policies import POLICIES
from rewardlab.rewards import register_reward_model
from rewardlab.rewards.zoo.hindsight import HERRewardModel

@register_reward_model("mine")
class Mine(HERRewardModel):
    pass

@POLICIES.register("lazy")
class Still:
    def __init__(self, env, seed):
        self.actions = np.zeros(env.action_space.shape, np.float32)

    def begin(self, fresh):
        pass

    def act(self, observation):
        return self.actions
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for registry in (REWARD_MODELS, POLICIES):
        monkeypatch.setattr(registry, "_entries", {name: registry[name] for name in registry})
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_things.py").write_text(OWN)
    yield tmp_path
    sys.modules.pop("own_things", None)


def test_a_name_with_a_module_imports_it(own_module: Path) -> None:
    assert create_reward_model({"model_type": "own_things:mine"}).model_type == "mine"
    env = make_vec_env("tabletop/PickCube", num_envs=2)
    assert not np.any(make_policy("own_things:lazy", env, seed=0).act(None))


def test_a_checkpoint_of_ones_own_model_is_loaded_with_the_module_and_not_without(own_module: Path) -> None:
    path = create_reward_model({"model_type": "own_things:mine"}).save(own_module / "saved")
    del REWARD_MODELS._entries["mine"], POLICIES._entries["lazy"], sys.modules["own_things"]
    with pytest.raises(RewardlabError, match="unknown reward model 'mine'"):
        load_reward_model(path)
    assert load_reward_model(path, overrides={"model_type": "own_things:mine"}).model_type == "mine"


def test_a_checkpoint_does_not_choose_what_is_imported(own_module: Path) -> None:
    path = create_reward_model({"model_type": "her"}).save(own_module / "saved")
    description = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(description | {"model_type": "own_things:mine"}))
    with pytest.raises(RewardlabError, match="unknown reward model 'own_things:mine'"):
        load_reward_model(path)
    overrides = ["reward.use_reward_model=true", f"reward.model.checkpoint_path={path}"]
    with pytest.raises(RewardlabError, match="unknown reward model 'own_things:mine'"):
        named_models(load_config("tabletop_ppo_mlp", overrides).reward)
    assert "own_things" not in sys.modules


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_thing:mine", "reward model 'own_thing:mine': importing 'own_thing' failed .ModuleNotFoundError"),
        ("quits:mine", "importing 'quits' failed .SystemExit: 3"),
        ("own_things:", "expected a name, or module:name"),
        ("own_things:Mine", "own_things has a Mine, but it is not registered under that name"),
        (":mine", "expected a name, or module:name"),
        ("broken:mine", "importing 'broken' failed .ZeroDivisionError"),
        ("own_things:mien", "unknown reward model 'mien'. Did you mean 'mine'"),
    ],
)
def test_what_is_wrong_with_a_module_is_said(own_module: Path, name: str, words: str) -> None:
    (own_module / "broken.py").write_text("1 / 0")
    (own_module / "quits.py").write_text("raise SystemExit(3)")
    with pytest.raises(ConfigError, match=words):
        create_reward_model({"model_type": name})
