"""The main job on the built-in task: warm up, learn the reward from pictures, go on with the learned reward alone."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from rewardlab.config import ExperimentConfig, load_config, to_overrides
from rewardlab.console import make_console, print_line
from rewardlab.data import draw_contact_sheet
from rewardlab.figures.trust import TrustFigures
from rewardlab.pipelines import collect, train_policy, train_reward
from rewardlab.pipelines.evaluate import evaluate
from rewardlab.pipelines.trained_policy import latest_checkpoint
from rewardlab.reports.history import HISTORY, read_history
from rewardlab.reports.policy_report import Comparison, write_policy_report
from rewardlab.rewards.audit import Alarm
from rewardlab.rewards.checkpoint import read_checkpoint
from rewardlab.run_state import load_state

CLASSIFIER = (  # a small one, trained within minutes
    "data.num_samples_per_episode=12",
    "threshold.target_fpr=0.003",  # strict: what a loose threshold lets pass near the goal, the policy finds
    "runner.max_epochs=6",
    "runner.val_check_interval=2",
    "reward.model.width=32",
)


@dataclass(frozen=True)
class Scale:
    """How much of everything; tests take less."""

    episodes: int = 512  # collected by the policy that the warm-up left
    iterations: int = 40  # of the policy on the learned reward
    judged: int = 200  # episodes that decide how good a policy is
    warm_up: tuple[str, ...] = ()  # overrides of the configs of the stages
    classifier: tuple[str, ...] = ()
    policy: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """Where everything is, and the share of episodes with true success: after the "warm-up", then "learned", "true"."""

    directory: Path
    success: dict[str, float]


def run(out: Path, *, seed: int, scale: Scale | None = None, console: Console | None = None) -> Outcome:
    """Writes everything into `out`, or the first unused name like it."""
    demo = Demo(_unused(out), seed, scale or Scale(), console or make_console())
    demo.say("Stage 1", "a policy learns from the task's own reward until its first successes; frames are collected")
    warm = demo.warm_up()
    demo.collect(warm)
    demo.say("Stage 2", "a classifier learns to see success in a single frame")
    classifier = demo.train_classifier()
    demo.say("Stage 3", "the policy goes on, with the learned reward alone")
    learned = demo.go_on(warm, "tabletop_ppo_mlp_resnet_reward", "learned_reward", classifier)
    demo.say("For comparison", "the same, with the task's own reward")
    true = demo.go_on(warm, "tabletop_ppo_mlp", "true_reward")
    success = {name: demo.judge(policy) for name, policy in (("warm-up", warm), ("learned", learned), ("true", true))}
    report = demo.report(success, classifier)
    demo.summarize(success, report)
    return Outcome(demo.out, success)


@dataclass(frozen=True)
class Demo:
    """One run of the demo; its stages meet through the files below `out`."""

    out: Path
    seed: int
    scale: Scale
    console: Console

    def warm_up(self) -> Path:
        place = {"data.collection.save_dir": self.out / "episodes" / "training"}
        cfg = self._config("tabletop_ppo_mlp_collect", "warm_up", place, self.scale.warm_up)
        return train_policy.run(cfg, console=self.console)

    def collect(self, policy: Path) -> Path:
        """What was collected in training is mostly early failures; the boundary of success lies in what comes now."""
        plan = {
            "data.collection.save_dir": self.out / "episodes" / "warmed_up",
            "data.collection.policy": policy,
            "data.collection.episodes": self.scale.episodes,
            "env.train.num_envs": 128,
        }
        return collect.run(self._config("tabletop_pickcube", "", plan), console=self.console)

    def train_classifier(self) -> Path:
        data = {"data.data_path": self.out / "episodes"}
        cfg = self._config("reward_training", "classifier", data, (*CLASSIFIER, *self.scale.classifier))
        return train_reward.run(cfg, console=self.console)

    def go_on(self, policy: Path, config: str, name: str, reward_model: Path | None = None) -> Path:
        """Go on training a policy, on the reward of a model if there is one."""
        last = int(load_state(policy)[0]["iteration"]) + self.scale.iterations
        budget = {"runner.max_epochs": last, "runner.resume_dir": policy, "reward.model.checkpoint_path": reward_model}
        return train_policy.run(self._config(config, name, budget, self.scale.policy), console=self.console)

    def judge(self, policy: Path) -> float:
        """The share of episodes that end in true success, when the policy does its best."""
        return evaluate(policy, episodes=self.scale.judged, seed=self.seed + 77_000)[1]["success_at_end"]

    def report(self, success: Mapping[str, float], classifier: Path) -> Path:
        warm_up, learned = (read_history(self.out / name / HISTORY) for name in ("warm_up", "learned_reward"))
        audits = load_state(latest_checkpoint(self.out / "learned_reward"))[0]["rewards"]["audits"]
        metrics = (read_checkpoint(classifier).config or {})["metrics"]
        return write_policy_report(
            self.out / "report.html",
            title="PickCube on a learned reward",
            history=[*warm_up, *learned],
            stages=[("task's reward", 0), ("learned reward", int(warm_up[-1]["env_steps"]))],
            alarms=[Alarm(**alarm) for audit in audits.values() for alarm in audit["alarms"]],
            disputed=self.out / "learned_reward" / "audit",
            figures=TrustFigures.from_json(metrics),
            comparison=[Comparison(self.seed, success["learned"], success["true"])],
            facts={
                "command": f"rewardlab demo --seed {self.seed}",
                "true success after the warm-up": f"{success['warm-up']:.1%}",
                "judged by": f"{self.scale.judged} episodes without exploration",
            },
        )

    def summarize(self, success: Mapping[str, float], report: Path) -> None:
        sheet = draw_contact_sheet(self.out / "episodes" / "warmed_up", self.out / "contact_sheet.png")
        self.say(
            "True success",
            f"{success['warm-up']:.1%} after the warm-up, {success['learned']:.1%} after training on the learned "
            f"reward alone, {success['true']:.1%} on the task's own reward at the same budget",
        )
        command = sys.argv[0] if Path(sys.argv[0]).name == "rewardlab" else "rewardlab"
        for what, where in (
            ("report", report),
            ("report of the classifier", self.out / "classifier" / "report.html"),
            ("frames and labels", sheet),
            ("look further", f"{command} evaluate {self.out / 'learned_reward'}"),
        ):
            print_line(self.console, f"{what}: {where}")

    def say(self, title: str, words: str) -> None:
        print_line(self.console, words, title=title)

    def _config(
        self, name: str, experiment: str, values: Mapping[str, Any], overrides: Sequence[str] = ()
    ) -> ExperimentConfig:
        where = {"runner.logger.log_path": self.out, "runner.logger.experiment_name": experiment}
        return load_config(name, [*to_overrides({"seed": self.seed, **where, **values}), *overrides])


def _unused(place: Path) -> Path:
    """The path itself, or with the first number behind it under which nothing exists."""
    candidates = chain([place], (place.with_name(f"{place.name}_{n}") for n in count(2)))
    return next(path for path in candidates if not path.exists())
