"""A run that somebody hands over is data: nothing that it names is imported unless the user names it too."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest
from policy_runs import SMALL_ZOO

from rewardlab.cli import main
from rewardlab.config import load_config
from rewardlab.config.schema import EnvConfig, WrapperConfig
from rewardlab.errors import DataError
from rewardlab.pipelines.evaluate import evaluate
from rewardlab.pipelines.trusted_modules import named_modules
from rewardlab.rewards import load_reward_model
from rewardlab.rewards.base import REWARD_MODELS
from rewardlab.rewards.classifier import ResNetRewardModel

MODULE = """
from pathlib import Path
import gymnasium
Path({marker!r}).touch()
if "Handed-v0" not in gymnasium.registry:
    gymnasium.register("Handed-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=5)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory with a module `handed_envs`, which leaves a mark when it is imported."""
    (tmp_path / "handed_envs.py").write_text(MODULE.format(marker=str(tmp_path / "imported")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(tmp_path))])
    yield tmp_path
    sys.modules.pop("handed_envs", None)
    gymnasium.registry.pop("Handed-v0", None)


def train(env_id: str) -> None:
    settings = [*SMALL_ZOO, "runner.max_epochs=1", "runner.logger.log_path=.", "runner.logger.experiment_name=my run"]
    assert main(["run", "zoo/cartpole_ppo", f'env.train.id="{env_id}"', *settings]) == 0


def printed_command(text: str) -> list[str]:
    """The last command `rewardlab ...` in what was printed, as arguments of `main`."""
    return shlex.split(text[text.rindex("rewardlab evaluate") :].splitlines()[0])[1:]


def test_modules_of_a_run_need_the_users_word(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("handed_envs:Handed-v0")  # the user's own config
    said = capsys.readouterr().out
    assert "evaluate: rewardlab evaluate 'my run' --trust-modules handed_envs" in said
    command = printed_command(said)
    # Another process, in which nobody has imported the module yet.
    sys.modules.pop("handed_envs")
    gymnasium.registry.pop("Handed-v0")
    (here / "imported").unlink()
    sys.path.append("")  # as with `python -m`
    assert main(["evaluate", "my run", "--episodes", "3", "--json"]) == 2
    error = capsys.readouterr().err
    assert "config.yaml: env.eval names 'handed_envs'" in error
    assert not (here / "imported").exists()
    advice = printed_command(error)
    assert advice[-3:] == ["--json", "--trust-modules", "handed_envs"]
    assert "--episodes=3" in advice
    sys.path.remove("")
    for arguments in (advice, command):
        assert main(arguments) == 0
        assert (here / "imported").exists()


def test_a_run_without_modules_needs_no_option(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("CartPole-v1")
    command = printed_command(capsys.readouterr().out)
    assert command == ["evaluate", "my run"]
    config = here / "my run" / "config.yaml"
    # An environment with the id of another in its options, as Gymnasium's wrapper around older ones has it.
    config.write_text(config.read_text().replace("options: {}", "options: {env_id: 'handed_envs:Handed-v0'}"))
    assert "handed_envs" in config.read_text()
    with pytest.raises(DataError, match=r"env\.eval names 'handed_envs'"):
        evaluate("my run", episodes=1, seed=0)
    assert not (here / "imported").exists()


def test_wrappers_of_a_run_need_the_users_word(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("CartPole-v1")
    config = here / "my run" / "config.yaml"
    config.write_text(config.read_text().replace("wrappers: []", "wrappers: [{name: 'handed_envs:Wrapper'}]"))
    assert main(["evaluate", "my run"]) == 2
    error = capsys.readouterr().err
    assert "env.eval names 'handed_envs'" in error
    assert not (here / "imported").exists()
    assert main(printed_command(error)) == 2  # imported now, but it has no such wrapper
    assert "unknown wrapper of handed_envs 'Wrapper'" in capsys.readouterr().err


def test_pictures_and_networks_of_a_run_have_limits(here: Path) -> None:
    train("CartPole-v1")
    config = here / "my run" / "config.yaml"
    before = config.read_text()
    cfg = load_config(str(config), check_files=False)
    size = "\n".join(f"    - {side}" for side in cfg.env.eval.image_size)
    config.write_text(before.replace(size, "    - 3\n    - 100000\n    - 100000"))
    with pytest.raises(DataError, match=r"config\.yaml, env\.eval\.image_size: .*REWARDLAB_MAX_PIXELS"):
        evaluate("my run", episodes=1, seed=0)
    sizes = "\n".join(f"    - {size}" for size in cfg.actor.model.hidden_sizes)
    config.write_text(before.replace(sizes, "    - 3000000000"))
    assert config.read_text() != before
    with pytest.raises(DataError, match="its config describes a network of more than"):
        evaluate("my run", episodes=1, seed=0)


@pytest.mark.parametrize(
    ("env", "modules"),
    [
        (EnvConfig(id="CartPole-v1"), []),
        (EnvConfig(id="a.b:Env-v0"), ["a.b"]),
        (EnvConfig(id="a:Env-v0", options={"inner": {"id": ["b:Env-v0", "a:X"]}, "host": "h:5000"}), ["a", "b"]),
        (EnvConfig(wrappers=(WrapperConfig(name="a.b:C", options={"of": "d:E"}),)), ["a.b", "d"]),
    ],
)
def test_named_modules(env: EnvConfig, modules: list[str]) -> None:
    assert named_modules(env) == modules


def test_a_checkpoint_imports_nothing_and_says_how_to_name_the_module(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "handed_model.py").write_text(
        "from rewardlab.rewards import ResNetRewardModel, register_reward_model\n"
        "@register_reward_model('handed')\nclass Handed(ResNetRewardModel):\n    pass\n"
    )
    path = ResNetRewardModel(arch="resnet10", width=8, hidden_dim=8, image_size=(3, 32, 32)).save(here / "m")
    text = (path / "config.json").read_text()
    for stored in ("handed", "handed_model:handed"):
        (path / "config.json").write_text(text.replace('"resnet_reward"', f'"{stored}"'))
        with pytest.raises(DataError, match=r"unknown reward model .*--trust-modules MODULE"):
            load_reward_model(path)
        assert "handed_model" not in sys.modules
    (path / "config.json").write_text(text.replace('"resnet_reward"', '"handed"'))
    try:
        assert main(["score", "m", "frame.png", "--trust-modules", "handed_model"]) == 1  # there is no such picture
        assert "frame.png does not exist" in capsys.readouterr().err
    finally:
        REWARD_MODELS._entries.pop("handed", None)
        sys.modules.pop("handed_model", None)


def test_a_module_that_cannot_be_imported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "m.pt").touch()
    assert main(["score", "m.pt", "frame.png", "--trust-modules", "nowhere"]) == 2
    assert "--trust-modules: importing 'nowhere' failed" in capsys.readouterr().err


def test_python_m_imports_nothing_from_the_current_directory(tmp_path: Path) -> None:
    for name in ("safetensors", "numpy"):  # imported when the command runs
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
    (tmp_path / "a.safetensors").write_bytes(b"")
    command = [sys.executable, "-m", "rewardlab.cli", "data", "info", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "a.safetensors" in done.stdout, done.stderr
    assert not (tmp_path / "imported").exists()
