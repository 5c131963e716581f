"""What goes wrong with a robot: each fault is an error that says so, or the episode is dropped and the run goes on."""

import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from sim_robot import SPEED, TARGET, MakeEnv, Sim, SimProcess, call, start_command, wait_for

from rewardlab.envs.robot.env import RobotEnv
from rewardlab.envs.robot.protocol import RobotError, RobotStopped
from rewardlab.envs.robot.watchdog import MOVING

STILL = np.zeros(3, np.float32)
FORWARD = np.array([0.0, 0.0, -1.0], np.float32)


def step_until_it_ends(env: RobotEnv) -> dict[str, Any]:
    """Step until the environment ends the episode by itself, and return the info of that step."""
    for _ in range(2000):
        _, _, terminated, truncated, info = env.step(STILL)
        if terminated or truncated:
            return info
    raise AssertionError("the episode went on")


def test_a_robot_that_is_down_at_the_start_is_an_error(make_env: MakeEnv, sim_process: SimProcess) -> None:
    sim_process.kill()
    env = make_env(sim_process.address)
    with pytest.raises(RobotError, match=r"no answer \(Connection refused\).*It was waited for 0\.5 s"):
        env.reset(seed=0)


def test_a_robot_that_goes_down_during_a_step_is_an_error(make_env: MakeEnv, sim_process: SimProcess) -> None:
    env = make_env(sim_process.address)
    env.reset(seed=0)
    env.step(STILL)
    sim_process.kill()
    with pytest.raises(RobotError, match=r"no answer \(Connection refused\).*env.train.options.patience_seconds"):
        env.step(STILL)
    with pytest.raises(gymnasium.error.ResetNeeded):  # the state from before is not what the robot is in
        env.step(STILL)


def test_a_robot_that_comes_back_costs_one_episode(make_env: MakeEnv, sim_process: SimProcess) -> None:
    env = make_env(sim_process.address, patience_seconds=60)
    env.reset(seed=0)
    sim_process.kill()
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(env.step(STILL)))
    thread.start()
    sim_process.start()
    thread.join(60)
    _, reward, terminated, truncated, info = results[0]
    assert (reward, terminated, truncated, info["discard"], info["success"]) == (0.0, False, True, True, False)
    assert "no answer" in info["message"]
    env.reset()
    env.step(STILL)
    assert env.figures()["stops"] == 1


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_robot_that_goes_down_during_a_reset(make_env: MakeEnv, sim_process: SimProcess, comes_back: bool) -> None:
    # Slow, so that it is killed in the middle.
    env = make_env(sim_process.address, patience_seconds=60 if comes_back else 0.5, control_hz=20)
    env.reset(seed=0)
    results: list[Any] = []

    def reset() -> None:
        try:
            results.append(env.reset(seed=3))
        except RobotError as error:
            results.append(error)

    before = sim_process.statistics()["commands"]
    thread = threading.Thread(target=reset)
    thread.start()
    wait_for(lambda: sim_process.statistics()["commands"] > before)
    sim_process.kill()
    if comes_back:
        sim_process.start()
    thread.join(60)
    if comes_back:
        assert not isinstance(results[0], Exception)
        env.step(STILL)
    else:
        assert "no answer" in str(results[0])


@pytest.mark.parametrize("faults", [{"garbage": True}, {"nan_pose": True}, {"latency": 1.2}], ids=str)
def test_a_robot_that_answers_nonsense_or_too_late_is_an_error(
    make_env: MakeEnv, sim: Sim, faults: dict[str, Any]
) -> None:
    env = make_env()
    env.reset(seed=0)
    before = sim.statistics()
    sim.faults(**faults)
    with pytest.raises(RobotError, match=r"(expected|it took too long).*The robot could not be told to stop"):
        env.step(FORWARD)
    after = sim.statistics()
    assert after["largest_step"] < 0.03, "nothing was sent on the word of nonsense"
    assert after["low"][2] >= before["low"][2] - 0.03


@pytest.mark.parametrize("faults", [{"garbage": True}, {"nan_pose": True}], ids=str)
def test_nonsense_for_a_moment_costs_one_episode(make_env: MakeEnv, sim: Sim, faults: dict[str, Any]) -> None:
    env = make_env(patience_seconds=60)
    env.reset(seed=0)
    sim.faults(**faults)
    timer = threading.Timer(0.2, lambda: sim.faults(**dict.fromkeys(faults, False)))
    timer.start()
    _, _, _, truncated, info = env.step(STILL)
    assert truncated
    assert info["discard"]
    timer.join()
    env.reset()
    env.step(STILL)


def test_a_slow_robot_is_slow_and_no_error(make_env: MakeEnv, sim: Sim) -> None:
    env = make_env(cameras={})
    env.reset(seed=0)
    sim.faults(latency=0.05)  # ten periods
    for _ in range(5):
        _, _, _, truncated, _ = env.step(STILL)
        assert not truncated
    assert env.figures()["hz"] < 100


def test_dropped_packets_are_sent_again(make_env: MakeEnv, sim: Sim) -> None:
    sim.faults(dropped=0.02)
    env = make_env(patience_seconds=60)
    env.reset(seed=0)
    for _ in range(100):
        _, _, _, truncated, _ = env.step(STILL)
        assert not truncated
    assert env.figures()["stops"] == 0


def test_the_emergency_stop_ends_a_run(make_env: MakeEnv, sim: Sim) -> None:
    """It is not waited for, and nothing clears it: only a person at the robot does."""
    env = make_env(patience_seconds=60)
    env.reset(seed=0)
    sim.faults(emergency_stop=True)
    where = sim.pose().copy()
    with pytest.raises(RobotStopped, match="the emergency stop is pressed; release it at the robot"):
        env.step(FORWARD)
    with pytest.raises(RobotStopped, match="the emergency stop is pressed"):
        env.reset()
    assert np.abs(sim.pose() - where).max() < 0.004
    sim.faults(emergency_stop=False)
    env.reset()
    env.step(STILL)


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"camera_black": True}, "camera 'wrist_camera': its picture is black"),
        ({"camera_gone": True}, "camera 'wrist_camera'.*status 503.*is not connected"),
        ({"camera_frozen": True}, "camera 'wrist_camera': the very same picture for .* it is frozen"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_camera_that_fails_ends_the_episode_and_then_the_run(
    make_env: MakeEnv, sim: Sim, faults: dict[str, Any], words: str
) -> None:
    cameras = {"wrist_camera": {"url": "http://{robot}/camera/wrist_camera.jpg", "frozen_seconds": 0.3}}
    env = make_env(cameras=cameras)
    env.reset(seed=0)
    sim.faults(**faults)
    with pytest.raises(RobotError, match=words + ".*The robot is stopped"):
        step_until_it_ends(env)
    assert env.figures()["stops"] == 1
    sim.faults(**dict.fromkeys(faults, False))
    env.reset()
    assert env.render_cameras(["wrist_camera"])["wrist_camera"].any()


def test_a_camera_that_comes_back_costs_one_episode(make_env: MakeEnv, sim: Sim) -> None:
    env = make_env(patience_seconds=60)
    env.reset(seed=0)
    sim.faults(camera_gone=True)
    timer = threading.Timer(0.3, lambda: sim.faults(camera_gone=False))
    timer.start()
    info = step_until_it_ends(env)
    timer.join()
    assert info["discard"]
    assert "is not connected" in info["message"]
    env.reset()
    env.step(STILL)


# A program of a user that moves the robot without end; its stages are told by what it prints.
ACTING = textwrap.dedent("""
    import sys
    import numpy as np
    from rewardlab.config.schema import EnvConfig
    from rewardlab.envs import make_vec_env
    from rewardlab.envs.closing import closed_after_errors

    address, hz, way = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    options = {"robots": [{"type": "Franka", "robot_ip": address}], "control_hz": hz, "watchdog_seconds": 0.5}
    if way == 0:
        options["reset"] = {"seconds": 1000, "tolerance": 1e-9}  # never arrives: it is resetting for ever
    target = (0.5, 0.0, 0.1, -3.14, 0.0, 0.0)
    cfg = EnvConfig(id="robot/peg_insertion", num_envs=1, target_ee_pose=target, options=options)
    env = make_vec_env(cfg)
    with closed_after_errors(env.close):
        print("made", flush=True)
        env.reset(seed=0)
        print("reset", flush=True)
        step = 0
        while True:
            env.step(np.array([[np.sin(step / 10), np.cos(step / 10), way]], np.float32))
            step += 1
""")


def start_acting(tmp_path: Path, sim: Sim, way: float = 0.3) -> "subprocess.Popen[str]":
    script = tmp_path / "acting.py"
    script.write_text(ACTING)
    command = [sys.executable, str(script), sim.address, str(10 * SPEED), str(way)]
    environment = {"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def moves(sim: Sim) -> bool:
    return bool(np.linalg.norm(sim.server.bench._target[:3] - sim.pose()[:3]) > 0.008)


def is_stopped(sim: Sim) -> bool:
    """Whether the last command was to stay where it is: those of the program are a step away."""
    return bool(np.linalg.norm(sim.server.bench._target[:3] - sim.pose()[:3]) < 0.003)


def test_a_program_that_is_killed_has_its_robot_stopped_by_the_watchdog(sim: Sim, tmp_path: Path) -> None:
    process = start_acting(tmp_path, sim)
    wait_for(lambda: sim.statistics()["commands"] > 200 and moves(sim))
    process.kill()
    assert process.stderr is not None
    assert f"watchdog: stopped http://{sim.address}: the program that moved it has ended" in process.stderr.read()
    process.wait()
    assert is_stopped(sim)


def test_a_program_that_hangs_has_its_robot_stopped_by_the_watchdog(sim: Sim, tmp_path: Path) -> None:
    process = start_acting(tmp_path, sim)
    wait_for(lambda: sim.statistics()["commands"] > 200 and moves(sim))
    process.send_signal(signal.SIGSTOP)
    assert process.stderr is not None
    assert "was silent for 0.5 s" in process.stderr.readline()
    assert is_stopped(sim)
    process.send_signal(signal.SIGCONT)  # it goes on as if nothing had been, and the watchdog watches again
    commands = sim.statistics()["commands"]
    wait_for(lambda: sim.statistics()["commands"] > commands + 50)
    process.kill()
    assert "the program that moved it has ended" in process.stderr.read()
    process.wait()


@pytest.mark.parametrize("moment", ["start", "reset", "step"])
def test_ctrl_c_at_any_moment_stops_the_robot(sim: Sim, tmp_path: Path, moment: str) -> None:
    process = start_acting(tmp_path, sim, way=0.0 if moment == "reset" else 0.3)
    assert process.stdout is not None
    assert process.stdout.readline() == "made\n"
    if moment == "reset":
        wait_for(lambda: sim.statistics()["commands"] > 20)
    elif moment == "step":
        assert process.stdout.readline() == "reset\n"
        wait_for(lambda: moves(sim))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert errors.strip().endswith("KeyboardInterrupt")
    assert process.returncode != 0
    wait_for(lambda: is_stopped(sim))
    assert "watchdog" not in errors, "the program has stopped it itself"
    assert call(sim.address, "/getstate")["vel"] is not None


def test_ctrl_c_ends_a_collection_in_order(sim: Sim, tmp_path: Path) -> None:
    """The command of a user: its robot is stopped, and it says that it was interrupted."""
    process = start_command(
        "collect",
        "examples/embodiment/config/realworld_peginsertion_rlpd_cnn_async.yaml",
        *("--episodes", "1000", "--policy", "random", "--out", str(tmp_path / "episodes")),
        "cluster.node_groups=[{hardware: {type: Franka, configs: [{robot_ip: '" + sim.address + "'}]}}]",
        *(
            "reward.use_reward_model=false",
            "algorithm.sac.demo_path=null",
            "runner.page.port=null",
            f"env.train.options.control_hz={10 * SPEED}",
        ),
        cwd=Path(__file__).parents[3],
        stderr=subprocess.PIPE,
    )
    wait_for(lambda: sim.statistics()["commands"] > 100)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert errors.strip().endswith("interrupted")
    wait_for(lambda: is_stopped(sim))
    assert TARGET[0] - 0.2 < sim.pose()[0] < TARGET[0] + 0.2


def test_a_robot_that_could_not_be_stopped_stays_watched(make_env: MakeEnv, sim: Sim) -> None:
    """The program cannot reach the robot any more, and ends: its watchdog still tries, and can once it is back."""
    env = make_env(watchdog_seconds=60.0, patience_seconds=0.2)
    env.reset(seed=0)
    env.step(FORWARD)
    sim.faults(garbage=True)
    with pytest.raises(RobotError, match="could not be told to stop"):
        env.step(FORWARD)
    assert env.watchdog is not None
    assert env.watchdog._state == MOVING
    sim.faults(garbage=False)
    before = sim.statistics()["commands"]
    env.robot.stop = _fail  # type: ignore[method-assign]
    env.close()
    assert sim.statistics()["commands"] == before + 1, "the watchdog has stopped it"


def _fail() -> None:
    raise RobotError("no way to it")


def test_a_stop_that_overtakes_a_command_is_made_again(make_env: MakeEnv, sim: Sim) -> None:
    env = make_env()
    env.reset(seed=0)
    act = env.robot.act

    def act_after_a_stop(command: Any) -> Any:
        env._held.set()
        env.robot.stop()
        return act(command)

    env.robot.act = act_after_a_stop  # type: ignore[method-assign]
    stops = env.counts.stops
    env._send(np.array([0, 0, -0.02, 0, 0, 0]), None)
    assert env.counts.stops == stops + 1
    wait_for(lambda: np.linalg.norm(sim.server.bench._target[:3] - sim.pose()[:3]) < 0.004)
    env._held.clear()
