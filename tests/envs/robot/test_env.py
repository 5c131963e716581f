"""The environment of a robot against the simulated one: starts, steps, labels, what people do."""

import threading
import time
from typing import Any

import gymnasium
import numpy as np
import pytest
from sim_robot import SPEED, TARGET, MakeEnv, Sim, wait_for

from rewardlab.config.schema import EnvConfig
from rewardlab.envs import make_vec_env
from rewardlab.envs.robot.env import RobotEnv
from rewardlab.envs.robot.people import Queue
from rewardlab.envs.robot.protocol import RobotError, RobotInterrupted
from rewardlab.errors import ConfigError
from rewardlab.live_state import LiveState

STILL = np.zeros(3, np.float32)


def go_to_target(env: RobotEnv) -> dict[str, Any]:
    for _ in range(100):
        _, _, terminated, truncated, info = env.step(env.scripted_action())
        assert not terminated
        assert not truncated
        if info["success"]:
            return info
    raise AssertionError("the script did not reach the target")


def test_starts_are_above_the_target_and_differ(make_env: MakeEnv) -> None:
    env = make_env(reset={"height": 0.08, "spread": [0.04, 0.04, 0.0]})
    starts = []
    for seed in (0, 1, 0):
        observation, info = env.reset(seed=seed)
        assert not info["success"]
        assert observation[2] == pytest.approx(0.08, abs=0.011)
        assert np.abs(observation[:2]).max() < 0.051
        starts.append(observation[:2])
    assert np.linalg.norm(starts[0] - starts[2]) < 0.02, "a seed is a start"
    assert np.linalg.norm(starts[0] - starts[1]) > 0.02


def test_an_action_moves_the_robot_by_its_share_of_a_step(make_env: MakeEnv) -> None:
    env = make_env()
    before, _ = env.reset(seed=0)
    for _ in range(3):
        after, _, _, _, info = env.step(np.array([0, 0, 0.5], np.float32))
    np.testing.assert_allclose(info["executed_action"], [0, 0, 0.5], atol=1e-6)
    assert after[2] > before[2] + 0.005
    assert np.abs(after[:2] - before[:2]).max() < 0.003


def test_the_state_and_the_picture_are_of_the_same_moment(make_env: MakeEnv) -> None:
    env = make_env()
    env.reset(seed=0)
    before = env.render_cameras(["wrist_camera"])["wrist_camera"]
    assert before is env.render_cameras(["wrist_camera"])["wrist_camera"], "asking takes no other picture"
    env.step(STILL)
    assert not np.array_equal(env.render_cameras(["wrist_camera"])["wrist_camera"], before)
    assert env.render_cameras(["wrist_camera"], (16, 16))["wrist_camera"].shape == (16, 16, 3)


def test_frames_are_labelled_by_being_at_the_target_now(make_env: MakeEnv, sim: Sim) -> None:
    """Leaving starts the count of steps at the target over; frames after it are failures again."""
    env = make_env()
    env.reset(seed=0)
    info = go_to_target(env)
    holds = [info["hold"]]
    for _ in range(4):
        _, reward, _, _, info = env.step(STILL)
        assert info["success"]
        assert reward == 1.0
        holds.append(info["hold"])
    assert holds == [1, 2, 3, 4, 5]
    assert sim.server.bench.truth()["success"]
    while info["success"]:
        _, reward, _, _, info = env.step(np.array([0, 0, 1], np.float32))
    assert (reward, info["hold"]) == (0.0, 0)
    assert go_to_target(env)["hold"] == 1


def test_the_printed_number_of_steps_at_the_target_ends_an_episode(sim: Sim) -> None:
    """`success_hold_steps` of the config, in the environment as runs and collection build it."""
    options = {"robots": [{"type": "Franka", "robot_ip": sim.address}], "control_hz": 10 * SPEED}
    cfg = EnvConfig(id="robot/peg_insertion", num_envs=1, target_ee_pose=TARGET, success_hold_steps=4, options=options)
    env = make_vec_env(cfg)
    try:
        env.reset(seed=0)
        streak = 0
        for _ in range(100):
            (action,) = env.unwrapped.call("scripted_action")  # type: ignore[attr-defined]
            _, _, terminated, truncated, infos = env.step(np.array([action]))
            assert not truncated[0]
            if terminated[0]:
                break
            streak = streak + 1 if infos["success"][0] else 0
            assert streak < 4
        assert terminated[0]
        assert infos["final_info"]["hold"][0] == 4
    finally:
        env.close()


@pytest.mark.parametrize(
    ("event", "success", "terminated", "truncated", "discard"),
    [
        ("success", True, True, False, False),
        ("failure", False, True, False, False),
        ("redo", False, False, True, True),
    ],
)
def test_labels_of_a_person_end_an_episode(
    make_env: MakeEnv, person: Queue, event: str, success: bool, terminated: bool, truncated: bool, discard: bool
) -> None:
    env = make_env()
    env.people.add(person)
    env.reset(seed=0)
    person.push(event)
    _, reward, *ended, info = env.step(STILL)
    assert (info["success"], *ended, info["discard"]) == (success, terminated, truncated, discard)
    assert reward == float(success)
    assert info["hold"] == int(success)


def test_labels_between_episodes_are_of_no_episode(make_env: MakeEnv, person: Queue) -> None:
    env = make_env()
    env.people.add(person)
    person.push("success")
    env.reset(seed=0)
    _, _, terminated, _, info = env.step(STILL)
    assert not terminated
    assert not info["success"]


def test_a_person_takes_the_place_of_the_policy(make_env: MakeEnv, person: Queue) -> None:
    env = make_env()
    env.people.add(person)
    env.reset(seed=0)
    person.hold([0, 0.5, 0, 1, 1, 1, 1])  # along x, y, z only: turns and the gripper are no axes of these actions
    _, _, _, _, info = env.step(np.array([1, 1, 1], np.float32))
    assert info["intervention"]
    np.testing.assert_allclose(info["executed_action"], [0, 0.5, 0], atol=1e-6)
    assert env.figures()["interventions"] == 1


def wait_until_stopped(env: RobotEnv, sim: Sim) -> int:
    """Wait until the robot's target is where it is, and nothing more is sent; return the number of commands."""
    wait_for(lambda: env.counts.stops and np.linalg.norm(sim.server.bench._target - sim.pose()) < 0.004)
    counts = [-1, sim.statistics()["commands"]]
    while counts[-1] != counts[-2]:
        time.sleep(0.1)  # 20 periods of the control rate
        counts.append(sim.statistics()["commands"])
    return int(counts[-1])


def test_a_person_who_moves_the_robot_lets_the_gripper_be(make_env: MakeEnv, sim: Sim, person: Queue) -> None:
    """The peg would fall if the gripper half opened whenever another key is held."""
    env = make_env(axes=["x", "y", "z", "gripper"])
    env.people.add(person)
    env.reset(seed=0)
    env.step(np.array([0, 0, 0, -1], np.float32))  # the policy keeps it closed
    person.hold([0, 1, 0, 0, 0, 0, 0])
    *_, info = env.step(np.array([0, 0, 0, 1], np.float32))
    assert info["executed_action"][3] == -1
    assert sim.server.bench.truth()["held"]
    person.hold([0, 0, 0, 0, 0, 0, 1])
    *_, info = env.step(np.zeros(4, np.float32))
    assert info["executed_action"][3] == 1  # its own key opens it


def test_a_person_stops_the_robot_and_lets_it_go_on(make_env: MakeEnv, sim: Sim, person: Queue) -> None:
    env = make_env()
    env.people.add(person)
    env.reset(seed=0)
    person.push("stop")
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(env.step(np.ones(3, np.float32))))
    thread.start()
    commands = wait_until_stopped(env, sim)
    person.push("success")  # of no episode: this one cannot be labelled any more
    thread.join(0.2)
    assert thread.is_alive()
    assert sim.statistics()["commands"] == commands
    person.push("resume")
    thread.join(20)
    _, _, terminated, truncated, info = results[0]
    assert (terminated, truncated, info["discard"]) == (False, True, True)
    assert sim.statistics()["commands"] == commands, "the action from before the stop is not sent after it"


def test_a_stop_of_the_page_comes_before_anything_else(make_env: MakeEnv, sim: Sim) -> None:
    """While the robot moves to its start, which takes a second here."""
    env = make_env(control_hz=20)
    live = LiveState()
    env.attach(live)
    env.reset(seed=0)
    before = sim.statistics()["commands"]
    thread = threading.Thread(target=lambda: env.reset(seed=5))
    thread.start()
    wait_for(lambda: sim.statistics()["commands"] > before)
    assert live.stop() == []
    commands = wait_until_stopped(env, sim)
    thread.join(0.3)
    assert thread.is_alive()
    assert sim.statistics()["commands"] == commands
    live.resume()
    thread.join(20)
    assert not thread.is_alive()
    env.step(STILL)


def test_home_is_moved_to_from_above_and_without_the_watchdog(
    make_env: MakeEnv, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not sideways out of a hole; and the watchdog must not stop a motion of the robot's own, which takes seconds."""
    env = make_env(watchdog_seconds=5.0, reset={"joints_every": 1, "lift": 0.08})
    env.reset(seed=0)
    go_to_target(env)
    reset, seen = env.robot.reset, []

    def note(*, joints: bool = False) -> None:
        assert env.watchdog is not None
        seen.append((joints, env.watchdog._state, float(sim.pose()[2])))
        reset(joints=joints)

    monkeypatch.setattr(env.robot, "reset", note)
    env.reset()
    assert [(joints, state) for joints, state, _ in seen] == [(False, b"i"), (True, b"i")]
    assert seen[1][2] > TARGET[2] + 0.07


def test_home_is_the_way_back_into_the_box(make_env: MakeEnv, sim: Sim) -> None:
    pose = sim.pose().copy()
    pose[0] += 0.15
    sim.server.bench.move_to(pose)
    wait_for(lambda: np.abs(sim.pose() - pose).max() < 0.003)
    without = make_env()
    with pytest.raises(RobotError, match=r"[45]\.\d cm outside of its workspace box"):
        without.reset(seed=0)
    without.close()
    make_env(reset={"joints_every": 1}).reset(seed=0)
    assert np.abs(sim.pose()[:2] - TARGET[:2]).max() < 0.065


def test_after_a_pause_a_command_starts_from_where_the_robot_is_now(
    make_env: MakeEnv, sim: Sim, monkeypatch: Any
) -> None:
    """Somebody has pushed it meanwhile: a command near the old place would make it jump back."""
    env = make_env()
    env.reset(seed=0)
    pose = sim.pose().copy()
    pose[0] += 0.06 if pose[0] < 0.5 else -0.06
    sim.server.bench.move_to(pose)
    wait_for(lambda: np.abs(sim.pose() - pose).max() < 0.003)
    env._measured_at -= 1.0  # as if a second had passed
    env.step(STILL)
    assert np.abs(sim.server.bench._target - pose).max() < 0.005
    assert sim.statistics()["largest_step_from_answer"] <= 0.02 + 1e-9


@pytest.mark.parametrize("during", ["reset", "hold"])
def test_an_environment_is_closed_in_the_middle_of_something(sim: Sim, person: Queue, during: str) -> None:
    """Ctrl-C arrives in the main thread, while another moves the robot or waits for a person."""
    options: dict[str, Any] = {"robots": [{"type": "Franka", "robot_ip": sim.address}], "control_hz": 10 * SPEED}
    if during == "reset":
        options["reset"] = {"tolerance": 1e-9, "seconds": 1000}  # it goes on for ever
    cfg = EnvConfig(id="robot/peg_insertion", num_envs=1, target_ee_pose=TARGET, options=options)
    vector: Any = make_vec_env(cfg)
    if during == "hold":
        vector.reset(seed=0)
    (people,) = vector.unwrapped.call("people")
    people.add(person)
    group = vector.unwrapped._groups[0]
    if during == "hold":
        person.push("stop")
        group.submit("step", [STILL])
    else:
        group.submit("reset", [0], [1], None)
    wait_for(lambda: sim.statistics()["commands"] > 5 and group._result.running())
    vector.close()
    with pytest.raises(RobotInterrupted, match="it was stopped, as the program is ending"):
        group.collect()
    last = sim.statistics()["commands"]
    wait_for(lambda: np.linalg.norm(sim.server.bench._target - sim.pose()) < 0.004)
    assert sim.statistics()["commands"] == last


def test_a_robot_whose_way_is_blocked_is_an_error(make_env: MakeEnv) -> None:
    """It answers, so waiting for it does not help."""
    env = make_env(reset={"seconds": 0.2, "tolerance": 1e-9})
    with pytest.raises(RobotError, match=r"it does not reach \[.*\] in 0\.2 s; it is at .* Is something in its way"):
        env.reset(seed=0)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(STILL)


def test_a_robot_outside_of_its_box_is_not_moved(make_env: MakeEnv, sim: Sim) -> None:
    env = make_env(limits={"low": [-0.1, -0.1, -0.01], "high": [0.1, 0.1, 0.05]})  # it is 15 cm above the target
    with pytest.raises(RobotError, match=r"10\.0 cm outside of its workspace box.*Move it there by hand"):
        env.reset(seed=0)
    target = sim.server.bench._target
    assert abs(target[2] - 0.25) < 0.002


def test_steps_need_a_reset(make_env: MakeEnv) -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        make_env().step(STILL)


def test_a_gripper_that_a_robot_does_not_have_is_an_error(make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env(axes=["x", "y", "z", "gripper"])
    from rewardlab.envs.robot.protocol import RobotSpaces

    monkeypatch.setattr(env.robot, "spaces", lambda: RobotSpaces(gripper=False))
    with pytest.raises(ConfigError, match=r"axes: found gripper, but http.* says that it has none"):
        env.reset(seed=0)


def test_two_clients_for_one_robot_are_refused(make_env: MakeEnv) -> None:
    first = make_env()
    with pytest.raises(RobotError, match=r"already moved by another program of this machine.*End that one first"):
        make_env()
    first.close()
    make_env()


def test_one_name_of_this_machine_is_as_good_as_another(make_env: MakeEnv, sim: Sim) -> None:
    make_env()
    port = sim.address.rpartition(":")[2]
    with pytest.raises(RobotError, match="already moved by another program"):
        make_env(robot={"type": "http", "url": f"http://localhost:{port}"})


def test_several_robots_move_at_the_same_time(sim: Sim) -> None:
    other = Sim()
    try:
        robots = [{"type": "Franka", "robot_ip": one.address} for one in (sim, other)]
        options = {"robots": robots, "control_hz": 10 * SPEED}
        cfg = EnvConfig(id="robot/peg_insertion", num_envs=2, target_ee_pose=TARGET, options=options)
        env = make_vec_env(cfg)
        env.reset(seed=0)
        for _ in range(5):
            env.step(np.array([[0, 0, 1], [0, 0, -1]], np.float32))
        assert sim.pose()[2] > other.pose()[2]
        env.close()
        with pytest.raises(ConfigError, match=r"num_envs: found 1, but .* names 2 robots"):
            make_vec_env(EnvConfig(id="robot/peg_insertion", num_envs=1, target_ee_pose=TARGET, options=options))
        with pytest.raises(ConfigError, match="found keyboard with 2 robots; these can move one robot only"):
            make_vec_env(
                EnvConfig(
                    id="robot/peg_insertion",
                    num_envs=2,
                    target_ee_pose=TARGET,
                    options={**options, "input": ["keyboard"]},
                )
            )
    finally:
        other.close()


def test_what_was_opened_is_closed_if_the_environment_cannot_be_built(make_env: MakeEnv) -> None:
    make_env()
    before = threading.active_count()
    with pytest.raises(RobotError, match="already moved"):
        make_env(cameras={"base": {"url": "http://{robot}/camera/base_camera.mjpg"}})
    assert not [t for t in threading.enumerate() if t.name == "camera base"], before
