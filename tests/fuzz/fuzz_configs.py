"""Configs: YAML that is mangled, nested, recursive or enormous, with overrides of the same kind."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import yaml
from fuzzing import Case, Target, deep, mutate_bytes, mutate_tree, nasty

from rewardlab.config import config_names
from rewardlab.config.load import config_files
from rewardlab.config.schema_keys import schema_keys

NAMES = list(config_names())
KEYS = sorted(schema_keys())
SHIPPED = {name: file.read_bytes() for name, file in config_files().items()}


def _draw(rng: random.Random, valid: Path, work: Path) -> Case:
    content = rng.choice((_mangled, _mangled, _mutated, _mutated, _mutated, _laughing, _tangled))(rng)
    file = work / "mine.yaml"
    file.write_bytes(content)
    overrides = [_override(rng) for _ in range(rng.choice((0, 0, 1, 3)))]
    name = rng.choice(NAMES) if overrides and rng.random() < 0.5 else file.name
    return Case(["config", "show", name, *overrides])


def _mangled(rng: random.Random) -> bytes:
    return mutate_bytes(rng, SHIPPED[rng.choice(NAMES)], SHIPPED[rng.choice(NAMES)])


def _mutated(rng: random.Random) -> bytes:
    tree = mutate_tree(rng, copy.deepcopy(yaml.safe_load(SHIPPED[rng.choice(NAMES)])))
    if rng.random() < 0.2 and isinstance(tree, dict):
        tree["defaults"] = nasty(rng)
    text: str = yaml.dump(tree) if rng.random() < 0.5 else json.dumps(tree)
    return text.encode("utf-8", "surrogatepass" if rng.random() < 0.2 else "replace")


def _laughing(rng: random.Random) -> bytes:
    """Few lines that stand for many values, by aliases or by interpolations."""
    depth, width = rng.choice((3, 10, 60)), rng.choice((2, 9, 30))
    alias = rng.random() < 0.5
    lines = ["a0: &a0 [x, x, x]"]
    for level in range(1, depth):
        before = [f"*a{level - 1}" if alias else f"'${{a{level - 1}}}'"] * width
        inner = ", ".join(before)
        if not alias and rng.random() < 0.5:
            lines.append(f"a{level}: {''.join(before)}".replace("''", "").replace("'", '"'))
        else:
            lines.append(f"a{level}: &a{level} [{inner}]" if rng.random() < 0.8 else f"a{level}: {{<<: {before[0]}}}")
    return "\n".join(lines).encode()


def _tangled(rng: random.Random) -> bytes:
    return rng.choice(
        (
            b"env: &a\n  train: *a\n",
            b"a: &a [*a]\n",
            b"defaults: [mine, _self_]\n",
            b"defaults: [{env: mine}]\n",
            b"defaults: [/mine@env: mine]\n",
            b"hydra: {searchpath: [pkg://canary]}\n",
            b"defaults: ['pkg://canary/x']\n",
            b"seed: !!python/object/apply:canary.x []\n",
            b"seed: !!python/name:canary.x\n",
            b"_target_: canary.x\n",
            b"seed: " + b"[" * 20_000,
            b"seed: " + b"9" * 6_000,
            b"seed: ${oc.create:{a: b}}\n",
            "".join(" " * i + f"a{i}:\n" for i in range(300)).encode(),
            "seed: é".encode("latin-1"),
            "seed: 1".encode("utf-16"),
            ("? " * 500).encode(),
            ("- " * 2000).encode(),
        )
    )


def _override(rng: random.Random) -> str:
    key = rng.choice(
        (*rng.sample(KEYS, 6), "", "a" * 300, "env", "reward.model", "env.train.0", "+seed", "~seed", "a.b.c")
    )
    value: Any = nasty(rng) if rng.random() < 0.8 else deep(rng)
    text = value if isinstance(value, str) else json.dumps(value)
    form = rng.randrange(4)
    return (f"{key}={text}", f'{key}="{text}"', f"{key}", f"{key}=[{text},{text}]")[form]


TARGET = Target("configs", lambda valid: None, _draw)
