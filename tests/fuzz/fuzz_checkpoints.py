"""Checkpoints: of a classifier as a directory and as a .pt, and of a policy's run."""

import copy
import io
import json
import random
import shutil
import zipfile
from pathlib import Path
from typing import Any

import torch
import yaml
from fuzzing import CANARY, Case, Target, mutate_bytes, mutate_tree, nasty
from safetensors.torch import load_file, save_file
from valid_files import SMALL_RUN, write_classifier, write_episodes, write_policy_run


def _prepare(valid: Path) -> None:
    write_classifier(valid / "model")
    write_policy_run(valid / "run")
    write_episodes(valid / "episodes")
    torch.save(load_file(valid / "model" / "model.safetensors"), valid / "model.pt")


def _draw(rng: random.Random, valid: Path, work: Path) -> Case:
    kind = rng.choice(("model", "model", "pt", "run", "run"))
    if kind == "pt":
        (work / "model.pt").write_bytes(_mutated_pt(rng, (valid / "model.pt").read_bytes()))
        return Case(["score", "model.pt", str(valid / "episodes")])
    shutil.copytree(valid / kind, work / kind)
    checkpoint = work / "model" if kind == "model" else work / "run" / "checkpoints" / "global_step_1"
    if rng.random() < 0.6:
        _mutate_json(rng, checkpoint / "config.json")
    if rng.random() < 0.4:
        _mutate_weights(rng, checkpoint / "model.safetensors")
    if kind == "model":
        return Case(["score", "model", str(valid / "episodes")])
    if rng.random() < 0.3:
        file = work / "run" / "config.yaml"
        tree = yaml.safe_load(file.read_bytes())
        tree = _name_module(rng, tree) if rng.random() < 0.5 else mutate_tree(rng, tree)
        file.write_bytes(json.dumps(tree).encode("utf-8", "replace"))
    resumed = ["runner.resume_dir=run/checkpoints/global_step_1", "runner.logger.log_path=again"]
    commands = (["evaluate", "run", "--episodes", "2"], ["run", "tabletop_ppo_mlp", *SMALL_RUN, *resumed])
    return Case(rng.choice(commands), may_ask_for_memory=True)  # the config of the run may ask for environments


def _name_module(rng: random.Random, tree: dict[str, Any]) -> dict[str, Any]:
    """Let the config of the run name a module that must not be imported."""
    environment = tree["env"][rng.choice(("train", "eval"))]
    if rng.random() < 0.7:
        environment["id"] = rng.choice((f"{CANARY}:Env-v0", f"{CANARY}:{environment['id']}", f"{CANARY}.x:Env"))
    else:
        environment["options"] = {rng.choice(("wrapper", "entry_point", "nope")): f"{CANARY}:Env"}
    return tree


def _mutate_json(rng: random.Random, file: Path) -> None:
    content = file.read_bytes()
    if rng.random() < 0.2:
        file.write_bytes(mutate_bytes(rng, content))
        return
    tree = json.loads(content)
    architecture = tree.get("architecture")
    if architecture and rng.random() < 0.6:
        key = rng.choice((*architecture, "width", "hidden_dim", "image_keys", "image_size", "nope"))
        architecture[key] = rng.choice((nasty(rng), 10**6, 10**9, ["camera"] * 5000, [3, 10**5, 10**5]))
    else:
        tree = mutate_tree(rng, copy.deepcopy(tree))
    file.write_bytes(json.dumps(tree).encode("utf-8", "replace"))


def _mutate_weights(rng: random.Random, file: Path) -> None:
    if rng.random() < 0.5:
        file.write_bytes(mutate_bytes(rng, file.read_bytes()))
        return
    weights = load_file(file)
    name = rng.choice(list(weights))
    changed = rng.choice((torch.zeros(3), weights[name].float() * float("nan"), torch.zeros(0), weights[name].bool()))
    weights[rng.choice((name, "nope", "\x1b[31m"))] = changed
    if rng.random() < 0.3:
        del weights[name]
    save_file({key: value.contiguous() for key, value in weights.items()}, file)


def _mutated_pt(rng: random.Random, content: bytes) -> bytes:
    """Damage the archive as a whole, or the pickle inside of it."""
    if rng.random() < 0.5:
        return mutate_bytes(rng, content)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(out, "w") as target:
        for item in source.infolist():
            data = source.read(item)
            if item.filename.endswith("data.pkl") or rng.random() < 0.05:
                data = mutate_bytes(rng, data)
            target.writestr(item.filename, data)
    return out.getvalue()


TARGET = Target("checkpoints", _prepare, _draw)
