"""Command lines: every command with options and names of every kind. What it is asked to do stays small."""

import random
from pathlib import Path

from fuzzing import Case, Target, nasty
from valid_files import SMALL_RUN, write_classifier, write_episodes, write_policy_run

ACTING = {
    "collect": ["tabletop_pickcube", "--episodes", "2", "env.train.num_envs=2", "env.train.max_episode_steps=3"],
    "run": ["tabletop_ppo_mlp", *SMALL_RUN],
    "train-reward": ["--data", "no_such_place"],
}
READING = ("data info", "data verify", "data show", "data convert", "score", "evaluate", "config show", "config list")
OPTIONS = (
    *("--episodes", "--out", "--format", "--seed", "--device", "--json", "--append", "--policy", "--data", "--config"),
    *("--frames", "--camera", "--threshold", "--backend", "--plot", "--help", "--version", "--nope", "-h", "--"),
)
KEYS = (
    *("env.train.id", "env.train.cameras", "env.train.reward", "env.train.options.x", "env.train.obs_mode"),
    *(
        "env.train.success_hold_steps",
        "seed",
        "cluster.device",
        "cluster.component_placement.actor",
        "runner.resume_dir",
    ),
    *("runner.logger.log_path", "data.collection.save_dir", "data.collection.policy", "data.collection.format"),
    *("reward.model.checkpoint_path", "reward.use_reward_model", "reward.model.model_type", "actor.model.kind"),
)


def _prepare(valid: Path) -> None:
    write_episodes(valid / "episodes")
    write_classifier(valid / "model")
    write_policy_run(valid / "run")


def _draw(rng: random.Random, valid: Path, work: Path) -> Case:
    words: list[str] = []
    names = [str(valid / name) for name in ("episodes", "model", "run", "nope", "episodes/success")]

    def word() -> str:
        return rng.choice(names) if rng.random() < 0.4 else str(nasty(rng))

    if rng.random() < 0.3:
        command = rng.choice(list(ACTING))
        words = [command]
        for _ in range(rng.randrange(3)):
            words.append(f"{rng.choice(KEYS)}={word()}")
        if rng.random() < 0.5:
            words += [rng.choice(OPTIONS), word()]
        words += ACTING[command]
    else:
        words = rng.choice(READING).split()
        for _ in range(rng.randrange(5)):
            words += [rng.choice(OPTIONS)] if rng.random() < 0.3 else []
            words.append(word())
        if words[0] == "evaluate":
            words += ["--episodes", "2"]
    if rng.random() < 0.05:
        words[rng.randrange(len(words))] = word()
    return Case(words, may_ask_for_memory=True)


TARGET = Target("commands", _prepare, _draw)
