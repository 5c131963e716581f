"""The commands as a user types them."""

import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import cv2
import pytest

from rewardlab.cli import main
from rewardlab.cli.execute import execute
from rewardlab.data import read_episodes, verify
from rewardlab.data.directory_lock import locked


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("collected") / "pickcube"
    assert main(["collect", "tabletop_pickcube", "--episodes", "10", "--out", str(out), "env.train.num_envs=4"]) == 0
    return out


def test_help_is_there_at_once_and_every_command_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    heavy = "import sys, rewardlab.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", heavy], check=False).returncode == 0
    verbs = {"data": ["info", "verify", "convert", "show"], "config": ["list", "show"]}
    commands = [[], ["demo"], ["collect"], ["train-reward"], ["score"], *([group] for group in verbs)]
    for command in commands + [[group, verb] for group in verbs for verb in verbs[group]]:
        with pytest.raises(SystemExit):
            main([*command, "--help"])
        assert " ".join(["rewardlab", *command]) in capsys.readouterr().out.split("example:")[1]


def test_collect_writes_exactly_what_was_asked_for(episodes: Path) -> None:
    found = read_episodes(episodes)
    assert len(found) == 10
    assert {episode.facts.task for episode in found} == {"tabletop/PickCube"}
    assert {episode.facts.policy for episode in found} == {"noisy_expert"}
    assert all(episode.length == 51 for episode in found)  # the reset frame and fifty steps
    assert all(episode.labels().any() == episode.facts.success for episode in found)


def test_the_same_seed_collects_the_same_episodes(tmp_path: Path, episodes: Path) -> None:
    again = tmp_path / "again"
    main(["collect", "tabletop_pickcube", "--episodes", "10", "--out", str(again), "env.train.num_envs=4"])
    files = sorted(path.relative_to(episodes) for path in episodes.rglob("*.safetensors"))
    assert files == sorted(path.relative_to(again) for path in again.rglob("*.safetensors"))
    assert all((episodes / file).read_bytes() == (again / file).read_bytes() for file in files)


def test_collect_refuses_to_repeat_itself_and_appends_new_episodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["collect", "tabletop_pickcube", "--episodes", "3", "--out", str(tmp_path), "env.train.num_envs=3"]
    assert main(arguments) == 0
    assert main(arguments) == 2
    assert "already has 3 episodes" in capsys.readouterr().err
    assert main([*arguments, "--append"]) == 0
    found = read_episodes(tmp_path)
    assert len(found) == 6
    assert len({episode.load().columns["observation.state"].tobytes() for episode in found}) == 6


def test_two_collections_into_one_directory_do_not_write_the_same_episodes_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["collect", "tabletop_pickcube", "--episodes", "3", "--out", str(tmp_path)]
    with locked(tmp_path, "another collection", ""):
        assert main(arguments) == 2
    assert "another collection of this process is writing to" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_terminated_collection_leaves_whole_files_and_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rewardlab.cli", "collect", "tabletop_pickcube", "--episodes", "100000"]
    with subprocess.Popen([*command, "--out", str(tmp_path)], stderr=subprocess.PIPE, text=True) as process:
        while not list(tmp_path.rglob("*.safetensors")):
            time.sleep(0.05)
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "interrupted" in error
    assert verify(tmp_path) == []
    assert len(read_episodes(tmp_path)) % 64 == 0  # 64 environments end together, and none of them is lost


def test_data_info_counts(episodes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "info", str(episodes)]) == 0
    text = capsys.readouterr().out
    found = read_episodes(episodes)
    successes = sum(episode.facts.success for episode in found)
    assert f"success {successes}   failure {10 - successes}" in text
    assert "base_camera 64x64" in text
    assert "510" in text


@pytest.mark.parametrize(("format", "suffix"), [("pickle", ".pkl"), ("npy", ".npy")])
def test_data_convert_verify_and_show(
    episodes: Path, tmp_path: Path, format: str, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "converted"
    assert main(["data", "convert", str(episodes), str(out), "--format", format]) == 0
    assert len(list(out.rglob(f"*{suffix}"))) == 10
    assert main(["data", "verify", str(out)]) == 0
    assert main(["data", "show", str(out), "--out", str(tmp_path / "sheet.png"), "--episodes", "2"]) == 0
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")
    damaged = next(out.rglob(f"*{suffix}"))
    damaged.write_bytes(damaged.read_bytes()[:-100])
    capsys.readouterr()
    assert main(["data", "verify", str(out)]) == 1
    assert damaged.name in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["collect", "tabletop_pickcub"], "tabletop_pickcube"),
        (["collect", "tabletop_pickcube", "--polcy", "expert"], "unknown option '--polcy'. Did you mean --policy?"),
        (["data", "info", "here", "key=value"], "unexpected argument 'key=value'. See rewardlab data info --help"),
        (["run", "tabletop_ppo_mlp", "--max_epochs", "3"], "Did you mean runner.max_epochs=3?"),
        (["train-reward", "--lr=0.1", "--data", "here"], "Did you mean actor.optim.lr=0.1?"),
        (["train-reward", "--data", "here", "--epochs", "3"], "Did you mean runner.max_epochs=3?"),
        (["collect", "tabletop_pickcube", "env.train.num_env=3"], "num_envs"),
        (["collect", "tabletop_pickcube", "data.collection.episodes=0"], "data.collection.episodes"),
        (["collect", "tabletop_pickcube", "--out", "a_file/below"], "cannot write to the directory a_file/below"),
        (["collect", "tabletop_pickcube", "--policy", "exprt"], "Did you mean 'expert'"),
        (["collect", "tabletop_pickcube", "--format", "h5"], "safetensors"),
        (["data", "info", "no/such/place"], "no/such/place does not exist"),
        (["config", "show", "tabletop_pickcube", "reward.combine_mode=mix"], "replace"),
    ],
)
def test_mistakes_are_answered_in_words(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a_file").touch()
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert "Traceback" not in error
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["colect"], "Did you mean 'collect'"),
        (["data", "sho", "here"], "Did you mean 'show'"),
        (["collect"], "required: name"),
        (["collect", "tabletop_pickcube", "--episodes", "0"], "expected a whole number above 0"),
    ],
)
def test_wrong_usage_ends_with_what_is_right(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err


def test_an_opencv_that_cannot_be_imported_is_answered_with_how_to_mend_it(capsys: pytest.CaptureFixture[str]) -> None:
    raised = "raise ImportError('libGL.so.1: cannot open shared object file', name='cv2')"
    assert execute(partial(exec, compile(raised, cv2.__file__, "exec"))) == 1
    error = capsys.readouterr().err
    assert "OpenCV cannot be imported (libGL.so.1: cannot open shared object file)" in error
    assert "-m pip install --force-reinstall --no-deps opencv-python-headless" in error


def test_an_unreached_target_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["data.collection.target_success=2", "data.collection.target_failure=2"]
    arguments = ["collect", "tabletop_pickcube", "--episodes", "6", "--policy", "expert", "--out", str(tmp_path)]
    assert main([*arguments, *wanted]) == 0
    assert "target_failure is 2, but 0 were found in 6 episodes" in capsys.readouterr().err
    assert len(read_episodes(tmp_path)) == 2


def test_config_show_prints_a_config_that_loads_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "tabletop_pickcube", "env.train.num_envs=7"]) == 0
    text = capsys.readouterr().out
    (tmp_path / "again.yaml").write_text(text)
    assert main(["config", "show", str(tmp_path / "again.yaml")]) == 0
    assert capsys.readouterr().out == text
    assert "num_envs: 7" in text


def test_an_older_key_works_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "tabletop_pickcube", "reward.mode=add"]) == 0
    captured = capsys.readouterr()
    assert "combine_mode: add" in captured.out
    assert "note: reward.mode is now reward.combine_mode" in captured.err
