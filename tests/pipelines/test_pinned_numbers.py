"""Numbers of short runs as they were when the reward path was redesigned: a refactor must not change them.

`pinned_numbers.json` was made before the redesign, by this file (`python tests/pipelines/test_pinned_numbers.py`); the
two runs on CartPole were made again when each copy of a Gymnasium environment got a child of the seed.
Another processor rounds differently, so figures are compared to a thousandth, over few iterations.
"""

import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from policy_runs import SMALL_ZOO
from rich.console import Console

from rewardlab.config import load_config
from rewardlab.pipelines import collect, train_policy
from rewardlab.rewards import BinaryRewardClassifier

pytestmark = pytest.mark.usefixtures("without_drawing")

PINNED = Path(__file__).with_name("pinned_numbers.json")
FIGURES = ("rollout/rewards", "rollout/rewards_std", "rollout/model_rewards", "env/return", "eval/return")
TABLETOP = [
    "env.train.num_envs=8",
    "env.eval.num_envs=4",
    "env.train.max_episode_steps=5",
    "env.train.image_size=[3,32,32]",
    "algorithm.ppo.rollout_steps=10",
    "algorithm.ppo.update_epochs=2",
    "actor.model.hidden_sizes=[16]",
    "actor.global_batch_size=40",
    "runner.val_check_interval=2",
    "runner.max_epochs=3",
]
SAC = [
    "algorithm.name=sac",
    "algorithm.sac.learning_starts=40",
    "algorithm.sac.rollout_steps=5",
    "algorithm.sac.utd_ratio=0.2",
    "algorithm.sac.replay_size=500",
]
RND = "{model_type: rnd, weight: 3.0, cotrain: true, options: {intrinsic_reward_type: assign}}"
TWO_TERMS = f"reward.model=[{{checkpoint_path: $model, weight: 2.0}},{RND}]"
ENVS_4 = ["env.train.num_envs=4", "env.eval.num_envs=4"]
CONTINUOUS = "reward.reward_type=continuous"

# name -> config and overrides; $model is a classifier, $demos and $cart are directories of episodes
Run = tuple[str, list[str]]
RUNS: dict[str, Run] = {
    "ppo, true reward": ("tabletop_ppo_mlp", TABLETOP),
    "ppo, every frame": ("tabletop_ppo_mlp", [*TABLETOP, "$classifier", CONTINUOUS, "reward.reward_weight=10"]),
    "ppo, last frames": ("tabletop_ppo_mlp", [*TABLETOP, "$classifier", CONTINUOUS, "reward.reward_mode=terminal"]),
    "ppo, added": ("tabletop_ppo_mlp", [*TABLETOP, "$classifier", CONTINUOUS, "reward.combine_mode=add"]),
    "sac, every frame": ("tabletop_ppo_mlp", [*TABLETOP, *SAC, "$classifier", CONTINUOUS]),
    "sac, demonstrations": (
        "tabletop_ppo_mlp",
        [*TABLETOP, *SAC, "$classifier", CONTINUOUS, "reward.reward_mode=terminal", "algorithm.sac.demo_path=$demos"],
    ),
    "sac, two terms": (
        "tabletop_ppo_mlp",
        [*TABLETOP, *SAC, "reward.use_reward_model=true", CONTINUOUS, TWO_TERMS],
    ),
    "dqn, gail": ("zoo/cartpole_dqn_gail", [*SMALL_ZOO, "reward.model.options.expert_data_path=$cart"]),
    "ppo, ngu": ("zoo/cartpole_ppo_ngu", SMALL_ZOO),
    "dqn, her": (
        "zoo/bitflip_dqn_her",
        [*ENVS_4, "runner.max_epochs=6", "algorithm.dqn.learning_starts=64", "actor.global_batch_size=32"],
    ),
}


def make_inputs(place: Path) -> dict[str, str]:
    quiet = Console(quiet=True)
    torch.manual_seed(0)
    classifier = BinaryRewardClassifier(image_size=(3, 32, 32), width=4, hidden_dim=8, num_spatial_blocks=2)
    model = classifier.save(place / "model")
    demos, cart = place / "demos", place / "cart"
    shown = ["data.collection.episodes=4", "data.collection.policy=expert", f"data.collection.save_dir={demos}"]
    collect.run(load_config("tabletop_pickcube", [*shown, "env.train.image_size=[3,32,32]"]), console=quiet)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CartPole knows no success
        shown = ["data.collection.policy=random", f"data.collection.save_dir={cart}", "seed=1"]
        collect.run(load_config("zoo/cartpole_expert", shown), console=quiet)
    return {"$model": str(model), "$demos": str(demos), "$cart": str(cart)}


def figures_of(run: Run, inputs: dict[str, str], place: Path) -> list[dict[str, float]]:
    config, overrides = run
    settings = []
    for text in overrides:
        for word, path in inputs.items():
            text = text.replace(word, path)
        settings.append(text)
    if "$classifier" in settings:
        settings.remove("$classifier")
        settings += ["reward.use_reward_model=true", f"reward.model.checkpoint_path={inputs['$model']}"]
    where = [f"runner.logger.log_path={place}", "runner.logger.experiment_name=run"]
    train_policy.run(load_config(config, [*settings, *where]), console=Console(quiet=True))
    rows = [json.loads(line) for line in (place / "run" / "metrics.jsonl").read_text().splitlines()]
    return [{name: row[name] for name in FIGURES if name in row} for row in rows]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_the_numbers_it_always_had(name: str, inputs: dict[str, str], tmp_path: Path) -> None:
    expected = json.loads(PINNED.read_text())[name]
    found = figures_of(RUNS[name], inputs, tmp_path)
    assert [set(row) for row in found] == [set(row) for row in expected]
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-5)


def pin(out: Path, make: Callable[[Path], dict[str, str]] = make_inputs) -> None:
    place = Path(tempfile.mkdtemp())
    made = make(place)
    numbers: dict[str, Any] = {}
    for number, (name, run) in enumerate(RUNS.items()):
        numbers[name] = figures_of(run, made, place / str(number))
    out.write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    pin(Path(sys.argv[1]) if len(sys.argv) > 1 else PINNED)
