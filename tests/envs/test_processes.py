"""Copies of an environment in other processes: the same numbers, and what happens when a process fails."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import copy_toys
import gymnasium
import numpy as np
import pytest
from copy_toys import CRASH, DIE, EXIT, HANG, RAISE, RETURN_A_LAMBDA, WALK, WARN, MisbehavedError, ServerEnv, WalkEnv

from rewardlab.child_process import ChildProcess, last_error
from rewardlab.envs import make_vec_env, processes
from rewardlab.envs.copies import CopiesVectorEnv
from rewardlab.errors import ConfigError, DataError, ProcessDied, RewardlabError, user_traceback

Record = list[tuple[Any, ...]]


def history(env: CopiesVectorEnv, steps: int = 8) -> Record:
    """Everything that an environment returns: of a reset, of steps and of a reset of two copies; and its frames."""
    env.keep_last_frames("test", {None: ("front",), (2, 2): ("front", "top")}, np.array([0, 2, 3]))
    made: Record = [env.reset(seed=3, options={"any": "thing"})]
    for _ in range(steps):
        made.append(env.step(np.full(env.num_envs, WALK)))
        made.append((env.render_cameras(("front", "top"), None, np.array([3, 0])), env.call("scripted_action", 2)))
        ended = np.flatnonzero(made[-2][2] | made[-2][3])
        if kept := [row for row in ended if row in (0, 2, 3)]:
            made.append((env.render_cameras(("top",), (2, 2), np.array(kept), final=True),))
    mask = np.array([False, True, True, False])
    made.append(env.reset(seed=5, options={"reset_mask": mask}))
    return [*made, (env.call("drawn"),)]


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, (tuple, list)) or (isinstance(one, np.ndarray) and one.dtype == object):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


@pytest.mark.parametrize(("kind", "keeps_state"), [("dict", False), ("text", True)])
def test_any_number_of_processes_gives_the_same(kind: str, keeps_state: bool) -> None:
    makers = [partial(WalkEnv, kind, keeps_state)] * 4
    records = []
    for count in (1, 3):
        env = CopiesVectorEnv(makers, count)
        records.append(history(env))
        env.close()
        env.close()
    assert_same(*records)
    assert sum(map(len, records[0])) > 20


def make_walk() -> CopiesVectorEnv:
    """Three copies in two processes, the first of which has two."""
    return CopiesVectorEnv([partial(WalkEnv, "box")] * 3, 2, "walk")


@pytest.fixture(scope="module")
def env() -> Iterator[CopiesVectorEnv]:
    made = make_walk()
    yield made
    made.close()


def do(env: CopiesVectorEnv, action: int, row: int = 2) -> Any:
    actions = np.full(3, WALK)
    actions[row] = action
    return env.step(actions)


def test_errors_and_warnings_arrive_as_they_are(env: CopiesVectorEnv) -> None:
    env.reset(seed=0)
    with pytest.raises(MisbehavedError, match="no such leg") as caught:
        do(env, RAISE)
    shown = user_traceback(caught.value)
    assert shown is not None
    assert "in misbehave" in shown
    assert "process_main" not in shown
    with pytest.raises(SystemExit, match="licence"):
        do(env, EXIT)
    with pytest.raises(DataError, match=r"'walk' returns something .*lambda.*processes=1"):
        do(env, RETURN_A_LAMBDA)
    with pytest.warns(RuntimeWarning, match="the left leg limps"):
        do(env, WARN)
    with pytest.raises(ValueError, match="found 2 actions"):
        env.step(np.zeros(2, int))
    _, reward, *_ = do(env, WALK)
    assert reward.shape == (3,)


def test_a_limit_that_is_no_number_is_named(env: CopiesVectorEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARDLAB_ENV_TIMEOUT", "soon")
    with pytest.raises(ConfigError, match="REWARDLAB_ENV_TIMEOUT: found 'soon', expected a number of seconds above 0"):
        env.reset()


def test_an_answer_that_nobody_waited_for_is_dropped(env: CopiesVectorEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes while an environment steps; a notebook goes on with the environment."""
    expected = env.reset(seed=0)[0]
    with monkeypatch.context() as patched:
        patched.setattr(ChildProcess, "receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            env.step(np.full(3, WALK))
    np.testing.assert_array_equal(env.reset(seed=0)[0], expected)
    np.testing.assert_array_equal(env.step(np.full(3, WALK))[4]["words"], ["step 1"] * 3)


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_process_that_dies_is_named_and_replaced(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_walk()
    env.keep_last_frames("test", {None: ("front",)})
    expected = frames_of(env)
    with pytest.raises(ProcessDied) as caught:
        do(env, DIE)
    assert "copies 0, 2 of 'walk' are lost, in step(): process" in str(caught.value)
    assert "ended with exit status 7 and printed last: the motor is on fire" in str(caught.value)
    assert "the motor is on fire" in capfd.readouterr().err
    assert_same(frames_of(env), expected)  # it keeps last frames as the one before
    with monkeypatch.context() as patched:
        patched.setattr(processes, "SOON", 0)
        patched.setenv("REWARDLAB_ENV_TIMEOUT", "0.2")
        with pytest.raises(ProcessDied, match=r"in step\(\): process \d+ gave no answer for 0.2 s"):
            do(env, HANG)
    assert_same(frames_of(env), expected)
    with pytest.raises(RewardlabError, match=r"killed by SIGSEGV.*Segmentation fault.*copy_toys.py.*, too") as again:
        do(env, CRASH)
    assert not isinstance(again.value, ProcessDied)
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        env.reset()
    env.close()


def frames_of(env: CopiesVectorEnv) -> Record:
    made: Record = [env.reset(seed=3)]
    for _ in range(6):
        made.append(env.step(np.full(3, WALK)))
        if (ended := np.flatnonzero(made[-1][2] | made[-1][3])).size:
            made.append((env.render_cameras(("front",), None, ended, final=True),))
    return made


def test_a_process_that_dies_while_it_builds_is_an_error() -> None:
    expected = r"copies 0 of 'walk' are lost, while they were built: .* status 3 and printed last: no licence"
    with pytest.raises(RewardlabError, match=expected):
        CopiesVectorEnv([partial(WalkEnv, "box", False, "constructor")] * 2, 2, "walk")


def test_what_another_process_cannot_import_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = r"'walk' cannot be built in another process: .*lambda.*Expected functions .* a module.*processes=1"
    with pytest.raises(ConfigError, match=expected):
        CopiesVectorEnv([lambda: WalkEnv()] * 2, 2, "walk")
    monkeypatch.setattr(WalkEnv, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "WalkEnv", WalkEnv, raising=False)
    with pytest.raises(ConfigError, match=r"defined in the script that was started \(__main__\). Define and register"):
        CopiesVectorEnv([WalkEnv] * 2, 2, "walk")


def test_an_id_that_only_this_process_has_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_vec_env("copy-toys/Walk-v0", num_envs=2, processes=2, options={"kind": "box"})
    assert env.reset(seed=0)[0].shape == (2, 3)
    env.close()
    monkeypatch.setattr(copy_toys, "misbehave", lambda action: time.sleep(0.001))  # an expensive step
    with pytest.warns(UserWarning, match="one process steps all environments: 'copy-toys/Lambda-v0' cannot be built"):
        make_vec_env("copy-toys/Lambda-v0", num_envs=2).close()


def test_an_id_that_a_module_registers_with_a_lambda() -> None:
    settings: dict[str, Any] = {"num_envs": 2, "processes": 2, "options": {"kind": "box"}}
    expected = "Register it with entry_point='module:Class' .*, such as env.train.id=copy_toys:copy-toys/Lambda-v0"
    with pytest.raises(ConfigError, match=expected):
        make_vec_env("copy-toys/Lambda-v0", **settings)
    env = make_vec_env("copy_toys:copy-toys/Lambda-v0", **settings)
    assert env.reset(seed=0)[0].shape == (2, 3)
    assert env.spec is not None
    assert env.spec.max_episode_steps == 5
    env.close()


@pytest.mark.parametrize(("seconds", "cores", "expected"), [(0.0, 4, 1), (0.001, 4, 3), (0.001, 2, 2)])
def test_the_cores_are_used_where_a_step_is_expensive(
    seconds: float, cores: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Made(CopiesVectorEnv):
        def __init__(self, makers: Any, processes: int, name: str) -> None:
            asked.append(processes)
            super().__init__(makers, 1, name)

    monkeypatch.setattr(copy_toys, "misbehave", lambda action: time.sleep(seconds))
    monkeypatch.setattr("rewardlab.envs.make_copies.CopiesVectorEnv", Made)
    monkeypatch.setattr("rewardlab.cores.available_cores", lambda: cores)
    make_vec_env("copy-toys/Walk-v0", num_envs=3).close()
    make_vec_env("copy-toys/Walk-v0", num_envs=3, processes=8).close()
    assert asked == [expected, 3]


SCRIPT = """
import sys
from functools import partial
sys.path.insert(0, {here!r})
import copy_toys
from rewardlab.envs.copies import CopiesVectorEnv

env = CopiesVectorEnv([partial(copy_toys.WalkEnv, "box")] * 2, 2, "walk")  # without a guard: no fork, no second import
env.reset(seed=0)
print(*(group._process._popen.pid for group in env._groups), flush=True)
env.step([{action}, 0])
"""


def test_processes_end_with_their_parent() -> None:
    """Even if it is killed while an environment hangs."""
    script = SCRIPT.format(here=str(Path(__file__).parent), action=HANG)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(children) == 2
        parent.send_signal(signal.SIGKILL)
    assert wait_until(lambda: not any(map(is_running, children)))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[CopiesVectorEnv, list[int]]]:
    """Two copies in two processes, each of which has started a program; and the programs."""
    env = CopiesVectorEnv([partial(ServerEnv, str(tmp_path))] * 2, 2, "server")
    servers = list(env.call("server_pid"))
    yield env, servers
    env.close()
    for pid in filter(is_running, servers):
        os.kill(pid, signal.SIGKILL)


def test_what_a_process_has_started_ends_with_it(
    served: tuple[CopiesVectorEnv, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    env, (first, second) = served
    env.reset(seed=0)
    with monkeypatch.context() as patched:
        patched.setenv("REWARDLAB_ENV_TIMEOUT", "1")
        with pytest.raises(ProcessDied, match="gave no answer for 1 s"):
            env.step([HANG, WALK])
    assert wait_until(lambda: not is_running(first))
    assert is_running(second)
    env.close()
    assert wait_until(lambda: not is_running(second))


def test_environments_are_closed_also_in_the_middle_of_a_step(
    served: tuple[CopiesVectorEnv, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after Ctrl-C."""
    env, servers = served
    env.reset(seed=0)
    with monkeypatch.context() as patched:
        patched.setattr(ChildProcess, "receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            env.step([WALK, WALK])
    assert wait_until(lambda: all((tmp_path / f"stepping {pid}").exists() for pid in servers))
    env.close()
    assert all((tmp_path / f"closed {pid}").exists() for pid in servers)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_the_line_that_says_most() -> None:
    assert last_error("a\n\n  b \n\n") == "b"
    assert last_error("") == ""
