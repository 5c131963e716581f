"""RLPD: true success of a policy that has a learned reward and 50 demonstrations, and nothing else; no warm-up.

    .venv/bin/python benchmarks/demonstrations.py --seeds 0 1 2

As on a robot: somebody records attempts, good and bad, for the classifier (512 episodes of the noisy expert here), and
a few good ones for the policy. SAC then never sees the environment's reward. Without demonstrations the same run is the
contrast.
"""

import argparse
import time
from pathlib import Path

from rich.console import Console

from rewardlab.config import ExperimentConfig, load_config, text_override
from rewardlab.pipelines import collect, train_policy, train_reward
from rewardlab.pipelines.demo import CLASSIFIER
from rewardlab.pipelines.evaluate import evaluate

QUIET = Console(quiet=True)
JUDGED = 200  # episodes


class Trial:
    """One seed; everything goes below `out`."""

    def __init__(self, out: Path, seed: int) -> None:
        self.out, self.seed = out, seed

    def episodes(self, policy: str, count: int) -> Path:
        place = self.out / policy
        save = text_override("data.collection.save_dir", str(place))
        plan = (f"data.collection.policy={policy}", f"data.collection.episodes={count}", save)
        return collect.run(self._config("tabletop_pickcube", policy, *plan), console=QUIET)

    def classifier(self, episodes: Path) -> Path:
        data = text_override("data.data_path", str(episodes))
        return train_reward.run(self._config("reward_training", "classifier", data, *CLASSIFIER), console=QUIET)

    def success(self, classifier: Path, demonstrations: Path | None) -> float:
        reward = text_override("reward.model.checkpoint_path", str(classifier))
        demos = [] if demonstrations is None else [text_override("algorithm.sac.demo_path", str(demonstrations))]
        name = "alone" if demonstrations is None else "with_demonstrations"
        cfg = self._config("tabletop_sac_mlp_resnet_reward", name, reward, *demos)
        return evaluate(train_policy.run(cfg, console=QUIET), episodes=JUDGED, seed=77_000)[1]["success_at_end"]

    def _config(self, config: str, name: str, *overrides: str) -> ExperimentConfig:
        where = text_override("runner.logger.log_path", str(self.out))
        return load_config(config, [f"seed={self.seed}", where, f"runner.logger.experiment_name={name}", *overrides])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--contrast", nargs="*", type=int, default=(0,), help="seeds that also run without")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark_demonstrations"))
    arguments = parser.parse_args()
    print("| seed | minutes | true success with 50 demonstrations | without |")
    print("|---|---|---|---|", flush=True)
    for seed in arguments.seeds:
        trial = Trial(arguments.out / f"seed_{seed}", seed)
        classifier = trial.classifier(trial.episodes("noisy_expert", 512))
        start = time.perf_counter()
        reached = trial.success(classifier, trial.episodes("expert", 50))
        minutes = (time.perf_counter() - start) / 60
        without = f"{trial.success(classifier, None):.1%}" if seed in arguments.contrast else ""
        print(f"| {seed} | {minutes:.1f} | {reached:.1%} | {without} |", flush=True)


if __name__ == "__main__":
    main()
