"""What the pages of the documentation say is so: options, configs, commands, code."""

import ast
import dataclasses
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from rewardlab.cli import main
from rewardlab.config import config_names, load_config
from rewardlab.data import read_episodes
from rewardlab.envs.make import FAMILIES
from rewardlab.envs.policies import POLICIES
from rewardlab.rewards import SuccessClassifier
from rewardlab.rewards.base import REWARD_MODELS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
ZOO = sorted(name for name in REWARD_MODELS if not issubclass(REWARD_MODELS[name], SuccessClassifier))
PAGES = [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
CONFIGS = config_names()
LONGEST_LINE = 140  # most are below 100
SMALL = ["runner.max_epochs=1", "algorithm.ppo.rollout_steps=8", "env.train.num_envs=2", "env.eval.num_envs=1"]
SMALL_TABLETOP = [
    *("runner.max_epochs=1", "env.train.num_envs=2", "env.eval.num_envs=1"),
    *("env.train.image_size=[3,32,32]", "env.train.max_episode_steps=8", "actor.global_batch_size=8"),
    *("algorithm.ppo.rollout_steps=8", "algorithm.sac.rollout_steps=8", "algorithm.sac.learning_starts=0"),
    "reward.min_recall=0",
]


def commands(page: Path) -> list[str]:
    """What follows `rewardlab`, of each command that a page prints; lines may be continued by a backslash."""
    whole_lines = page.read_text().replace("\\\n", "")
    return re.findall(r"^ *(?:\.venv/bin/)?rewardlab ([^\n]+)$", whole_lines, re.MULTILINE)


def code_blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.+?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def page_of(name: str) -> str:
    return (DOCS / "zoo" / f"{name}.md").read_text()


def test_every_model_has_a_page_in_the_index_and_a_curve() -> None:
    assert sorted(page.stem for page in PAGES if page.parent.name == "zoo" and page.stem != "README") == ZOO
    index = (DOCS / "zoo" / "README.md").read_text()
    for name in ZOO:
        assert f"[`{name}`]({name}.md)" in index
        assert f"({name}.png)" in page_of(name) or "Not drawn yet." in page_of(name)


def test_curves_are_small() -> None:
    pictures = list((DOCS / "zoo").glob("*.png"))
    assert pictures
    assert all(0 < picture.stat().st_size < 60_000 for picture in pictures)


@pytest.mark.parametrize("name", ZOO)
def test_the_options_of_a_page_are_the_fields_with_their_defaults(name: str) -> None:
    section = page_of(name).partition("\n## Options\n")[2].partition("\n## ")[0]
    said = {key: yaml.safe_load(default) for key, default in re.findall(r"^\| `(\w+)` \| `(.+?)` \|", section, re.M)}
    fields = dataclasses.fields(REWARD_MODELS[name])  # type: ignore[arg-type]
    assert said == {f.name: list(f.default) if isinstance(f.default, tuple) else f.default for f in fields}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_configs_and_commands_of_a_page_exist(page: Path) -> None:
    text = page.read_text()
    for name in re.findall(r"\bzoo/\w+_\w+(?![\w.])", text.replace("rewards/zoo", "").replace("docs/zoo", "")):
        assert name in CONFIGS, f"{page.name} names the config '{name}'"
    for command in commands(page):
        words = shlex.split(command.replace("$share", "0.5"), comments=True)
        verb, config, *overrides = (word for word in words if "--" not in word)
        if verb not in ("run", "collect") or config.endswith(".yaml"):
            continue  # another command, or a config of one's own
        load_config(config, [word for word in overrides if "=" in word], check_files=False)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    without_code = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", without_code, re.MULTILINE)
    plain = (re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", title).lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_to_files_and_headings(page: Path) -> None:
    for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
        target = page.parent / link if link else page
        assert target.exists(), f"{page.name} links to '{link}'"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to '{link}#{anchor}'"


def test_every_page_is_in_the_list_of_pages() -> None:
    listed = set(re.findall(r"\]\(([\w/]+\.md)", (DOCS / "README.md").read_text()))
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} <= listed
    navigation = set(re.findall(r": ([\w/]+\.md)", (ROOT / "mkdocs.yml").read_text()))
    assert navigation == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} | {"api.md"}


def printed_texts() -> list[str]:
    """Return every string of the package, with `...` in the place of what a program fills in."""
    texts = []
    for file in (ROOT / "rewardlab").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                texts.append("".join(v.value if isinstance(v, ast.Constant) else "..." for v in node.values))
    return texts


def test_the_messages_of_troubleshooting_are_the_programs() -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    messages = [line for block in re.findall(r"```text\n(.+?)```", page, re.DOTALL) for line in block.splitlines()]
    messages += re.findall(r"^\| `([^`]+)` \|", page.partition("## Robots and cameras")[2], re.MULTILINE)
    assert len(messages) > 25
    texts = printed_texts()
    gone = [message for message in messages if not any(message in text for text in texts)]
    assert not gone, f"troubleshooting.md quotes messages that the program does not print: {gone}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_are_short_enough_to_read(page: Path) -> None:
    lines = page.read_text().splitlines()
    long = [number for number, line in enumerate(lines, 1) if len(line) > LONGEST_LINE and line[:1] != "|"]
    assert not long, f"{page.name}: lines {long} are longer than {LONGEST_LINE} characters"


def test_every_file_of_the_package_is_in_the_tree_of_the_architecture() -> None:
    (tree,) = re.findall(r"## Every file\n```\n(.+?)```", (DOCS / "architecture.md").read_text(), re.DOTALL)
    listed: set[str] = set()
    folders: list[str] = []
    for line in filter(None, tree.splitlines()):
        name, depth = line.split()[0], (len(line) - len(line.lstrip())) // 2
        folders = folders[:depth]
        if name.endswith("/"):
            folders.append(name)
        else:
            listed.add("".join(folders) + name)
    files = (file for file in (ROOT / "rewardlab").rglob("*.py") if not file.name.startswith("__"))
    assert {file.relative_to(ROOT).as_posix() for file in files} == listed


def test_the_files_that_pages_name_exist() -> None:
    """Paths in code style, as `workers/env.py` in the path of a transition."""
    for page in (DOCS / "architecture.md", DOCS / "rewards.md", ROOT / "CONTRIBUTING.md"):
        for name in re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text()):
            places = (ROOT / name, ROOT / "rewardlab" / name)
            assert any(place.exists() for place in places), f"{page.name} names '{name}'"


def test_a_weighted_list_of_models_is_a_config(tmp_path: Path) -> None:
    (block,) = code_blocks(DOCS / "zoo" / "README.md", "yaml")
    (tmp_path / "both.yaml").write_text(block)
    cfg = load_config(str(tmp_path / "both.yaml"), check_files=False)
    weights = {model.model_type: model.weight for model in cfg.reward.models}
    assert weights == {"gail": 1.0, "rnd": 0.5}


def test_the_placement_of_the_page_on_scaling_is_a_config(tmp_path: Path) -> None:
    placements = []
    for block in code_blocks(DOCS / "scaling.md", "yaml"):
        (tmp_path / "three_nodes.yaml").write_text(block)
        placements.append(
            load_config(str(tmp_path / "three_nodes.yaml"), check_files=False).cluster.component_placement
        )
    assert placements[0] == {"actor": "0-0", "rollout": "1-0", "env": "1-0", "reward": "2-0"}
    assert placements[1] == {"env": "sim-0", "rollout": "sim-0"}


@pytest.mark.usefixtures("without_drawing")
def test_the_configs_of_the_page_on_rewards_train_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All commands in the order of the page, in one directory, with a classifier that knows its episodes."""
    page = DOCS / "rewards.md"
    monkeypatch.chdir(tmp_path)
    collect = "collect tabletop_pickcube --episodes 12 --out data/pickcube env.train.image_size=[3,32,32]"
    assert main(collect.split()) == 0
    learn = "train-reward --data data/pickcube reward.model.width=4 reward.model.hidden_dim=8 runner.max_epochs=1"
    assert main([*learn.split(), "data.num_samples_per_episode=4", "runner.logger.log_path=runs/classifier"]) == 0
    for block in code_blocks(page, "yaml"):
        name = block.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(block)
    for command in commands(page):
        words = command.split()
        few = ["--episodes", "4", "env.train.image_size=[3,32,32]"]
        small = few if words[0] == "collect" else SMALL_TABLETOP
        assert main([*words, *small]) == 0, command
    finished = {path.parents[1].name for path in tmp_path.glob("runs/*/checkpoints/global_step_1")}
    assert finished == {path.stem for path in tmp_path.glob("*.yaml")}


def test_an_expert_in_python_trains_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = code_blocks(DOCS / "zoo" / "README.md", "python")
    monkeypatch.chdir(tmp_path)
    exec(block, {})
    assert (tmp_path / "runs/cartpole_ppo_gail/reward_models/last/gail").is_dir()


def test_the_policy_of_the_page_collects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = DOCS / "adding_a_reward_model.md"
    (tmp_path / "my_policies.py").write_text(code_blocks(page, "python")[2])
    (command,) = re.findall(r"^rewardlab (collect .+ --policy my_policies.+)$", page.read_text(), re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(POLICIES, "_entries", {name: POLICIES[name] for name in POLICIES})

    assert main(shlex.split(command)) == 0
    assert len(list((tmp_path / "data/reaching").rglob("*.safetensors"))) == 4
    del sys.modules["my_policies"]


def test_the_family_of_the_page_is_collected_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = DOCS / "your_own_environment.md"
    (tmp_path / "my_simulator.py").write_text(code_blocks(page, "python")[-1])
    command = commands(page)[-1]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(FAMILIES, "_entries", {name: FAMILIES[name] for name in FAMILIES})

    assert main(shlex.split(command)) == 0
    episodes = read_episodes(tmp_path / "data/slide")
    assert {episode.facts.task for episode in episodes} == {"rail/Slide"}
    assert all(episode.facts.success for episode in episodes)
    assert episodes[0].facts.cameras == {"front": (64, 64)}
    del sys.modules["my_simulator"]


@pytest.mark.usefixtures("without_drawing")
def test_the_environment_of_the_page_is_collected_from_and_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All commands of the page but that of the family, in its order, in one directory."""
    page = DOCS / "your_own_environment.md"
    environment, in_python, _ = code_blocks(page, "python")
    (config,) = code_blocks(page, "yaml")
    (tmp_path / "rail.py").write_text(environment)
    (tmp_path / "rail.yaml").write_text(config)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    small = {
        "collect": ["--episodes", "12"],
        "train-reward": ["reward.model.width=4", "runner.max_epochs=1", "data.num_samples_per_episode=4"],
        "run": [
            *("runner.max_epochs=1", "env.train.num_envs=2", "env.eval.num_envs=2"),
            *("actor.global_batch_size=20", "reward.min_recall=0"),
        ],
        "evaluate": ["--episodes", "4"],
    }
    for command in commands(page)[:-1]:
        words = shlex.split(command)
        assert main([*words, *small.get(words[0], [])]) == 0, command
    assert "success at end" in capsys.readouterr().out
    assert {episode.facts.success for episode in read_episodes(tmp_path / "data/rail")} == {True, False}
    (tmp_path / "in_python.py").write_text(f"{in_python}\nprint(env.reset(seed=0)[0].shape)")
    runpy.run_path("in_python.py")
    assert "(4, 2)" in capsys.readouterr().out
    del sys.modules["rail"]


def test_the_wrappers_of_the_page_are_a_config(tmp_path: Path) -> None:
    (block,) = code_blocks(DOCS / "environments.md", "yaml")
    (tmp_path / "minigrid.yaml").write_text(block)
    env = load_config(str(tmp_path / "minigrid.yaml"), check_files=False).env.eval
    assert [wrapper.name for wrapper in env.wrappers][-1] == "minigrid.wrappers:ImgObsWrapper"


def test_the_model_of_the_page_trains_a_policy_and_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = DOCS / "adding_a_reward_model.md"
    model, load, _ = code_blocks(page, "python")
    (config,) = code_blocks(page, "yaml")
    files = {"visit_counts.py": model, "load.py": load, "keydoor_counts.yaml": config}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    (command,) = re.findall(r"^rewardlab (run .+)$", page.read_text(), re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(REWARD_MODELS, "_entries", {name: REWARD_MODELS[name] for name in REWARD_MODELS})

    assert main([*command.split(), *SMALL]) == 0
    capsys.readouterr()
    runpy.run_path("load.py")

    start, corner = map(float, re.findall(r"\d+\.\d+", capsys.readouterr().out))
    assert start < corner == 1
    del sys.modules["visit_counts"]
