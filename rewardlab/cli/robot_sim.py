"""`rewardlab robot-sim`: a simulated robot behind the network protocol of a real one."""

import argparse
import json
import math
from typing import TYPE_CHECKING, Any

from rewardlab.cli.command import Commands, add_command, seed_number

if TYPE_CHECKING:
    from rewardlab.envs.robot_sim.server import SimServer

LOOPBACK = ("127.0.0.1", "localhost", "::1")
CONTROL_HZ = 10.0  # of a real robot


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    example = "rewardlab robot-sim --task peg_insertion --port 5000"
    summary = "simulate a robot with cameras behind the network protocol of a Franka"
    command = add_command(commands, "robot-sim", summary, example, _simulate)
    command.add_argument("--task", default="peg_insertion", help="(default: %(default)s)")
    command.add_argument("--port", type=_port, default=5000, help="0 = any that is free (default: %(default)s)")
    command.add_argument(
        "--host", default="127.0.0.1", help="address to listen at; others than this machine's own let others in"
    )
    command.add_argument(
        "--speed", type=_speed, default=1.0, help="simulated seconds in a second (default: %(default)s)"
    )
    command.add_argument(
        "--image-size", type=_image_size, default=128, help="pixels of a side of a picture (default: %(default)s)"
    )
    command.add_argument("--seed", type=seed_number, default=0, help="(default: %(default)s)")
    command.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a fault from the start on, such as latency=0.02 or camera_frozen=wrist_camera",
    )


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"found {text[:20]!r}, expected a number from 0 to 65535")
    return int(text)


def _image_size(text: str) -> int:
    if not (text.isdecimal() and 16 <= int(text) <= 2048):
        raise argparse.ArgumentTypeError(f"found {text[:20]!r}, expected a number from 16 to 2048")
    return int(text)


def _speed(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.01 <= value <= 100:
        raise argparse.ArgumentTypeError(f"found {text[:20]!r}, expected a number from 0.01 to 100")
    return value


def _simulate(arguments: argparse.Namespace) -> None:
    from rewardlab.envs.robot_sim.faults import Faults, changed
    from rewardlab.envs.robot_sim.server import SimOptions, SimServer
    from rewardlab.screen import PatientStream, say, say_error

    options = SimOptions(
        task=arguments.task,
        host=arguments.host,
        port=arguments.port,
        speed=arguments.speed,
        image_size=arguments.image_size,
        seed=arguments.seed,
        faults=changed(Faults(), _read_faults(arguments.fault)),
    )
    server = SimServer(options)
    try:
        if options.host not in LOOPBACK:
            say_error(f"warning: --host {options.host}: whoever reaches this machine can move this robot")
        speed = "in real time" if options.speed == 1 else f"at {options.speed:g} times real time"
        say(f"simulated robot ({options.task}) at http://{server.address}, {speed}; Ctrl-C ends it. In a config:\n")
        say(_config_lines(server))
        PatientStream().flush()
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:  # also SIGTERM
        say("the simulated robot has ended")
    finally:
        server.close()


def _read_faults(given: list[str]) -> dict[str, Any]:
    from rewardlab.errors import ConfigError

    values: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--fault: found {text!r}, expected NAME=VALUE such as latency=0.02")
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value.split(",") if "," in value else value
    return values


def _config_lines(server: "SimServer") -> str:
    host, _, port = server.address.rpartition(":")
    address = f"{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port}"
    hz = f"\n      control_hz: {CONTROL_HZ * server.options.speed:g}" if server.options.speed != 1 else ""
    return f"""\
cluster:
  node_groups:
    - hardware: {{type: Franka, configs: [{{robot_ip: "{address}"}}]}}
env:
  train:
    id: robot/{server.options.task}
    target_ee_pose: [0.5, 0.0, 0.1, -3.14, 0.0, 0.0]
    options:{hz}
      cameras:
        base_camera: {{url: "http://{{robot}}/camera/base_camera.jpg"}}
        wrist_camera: {{url: "http://{{robot}}/camera/wrist_camera.jpg"}}
"""
