"""Takes docs/images/live_page.png from the page of a real run: a simulated robot, a success classifier, and a "person"
who guides the arm into the hole through the page from time to time.

    python docs/screenshots.py --model logs/reward_model_realworld/checkpoints/best_model --demos collected_data

The classifier and the demonstrations are those of the workflow for robots. Needs a Chromium (`make browser`).
"""

import argparse
import io
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "web"))

from browser import find_chromium, launched  # noqa: E402

CONFIG = ROOT / "examples/embodiment/config/realworld_peginsertion_rlpd_cnn_async.yaml"
TARGET = (0.5, 0.0, 0.1)
HZ = 20
STEP = 0.02  # metres of a full motion
ABOVE = 0.075  # metres from which the peg goes straight down


def start(*words: object) -> tuple[subprocess.Popen[str], re.Match[str]]:
    """Start a command of rewardlab; return it and the address that it prints."""
    command = [sys.executable, "-m", "rewardlab.cli", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://([\d.:]+)/?", line):
            return process, found
    raise SystemExit(f"{' '.join(command)} has ended")


def motion_to_hole(robot: str) -> list[float]:
    """Return the motion that a person would make now: above the hole, then down."""
    with urllib.request.urlopen(f"http://{robot}/getpos", b"", timeout=5) as answer:
        place = json.load(answer)["pose"][:3]
    gap = [goal - here for goal, here in zip(TARGET, place, strict=True)]
    if max(abs(gap[0]), abs(gap[1])) > 0.002 and place[2] < TARGET[2] + ABOVE:
        gap[2] = 0.02
    elif max(abs(gap[0]), abs(gap[1])) > 0.002:
        gap[2] = 0.0
    return [max(-1.0, min(1.0, 0.6 * part / STEP)) for part in gap] + [0.0] * 4


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--demos", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60, help="of the run, before the picture is taken")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "screenshots")
    arguments = parser.parse_args()
    chromium = find_chromium()
    assert chromium is not None, "make browser"
    shutil.rmtree(arguments.runs, ignore_errors=True)
    simulated, address = start("robot-sim", "--port", 0, "--speed", HZ / 10)
    robot = address[1]
    run, page_address = start(
        *("run", CONFIG, f"cluster.node_groups=[{{hardware: {{type: Franka, configs: [{{robot_ip: '{robot}'}}]}}}}]"),
        *(f"env.train.options.control_hz={HZ}", f"reward.model.checkpoint_path={arguments.model}"),
        *(f"algorithm.sac.demo_path={arguments.demos}", "algorithm.sac.replay_size=5000", "runner.page.port=0"),
        *(f"runner.logger.log_path={arguments.runs}", "runner.logger.experiment_name=peg_insertion"),
    )
    try:
        with launched(chromium) as browser:
            sizes = {"live_page": ({"width": 1280, "height": 800}, "light")}
            sizes["live_page_phone"] = ({"width": 390, "height": 844}, "dark")
            pages = {
                name: browser.new_context(viewport=size, color_scheme=scheme).new_page()  # type: ignore[arg-type]
                for name, (size, scheme) in sizes.items()
            }
            for page in pages.values():
                page.goto(page_address[0])
            first, end = pages["live_page"], time.monotonic() + arguments.seconds
            while time.monotonic() < end or first.inner_text("#hold-count").startswith("0"):
                outcomes = first.locator("#last i").count()
                if outcomes % 3 and first.inner_text("#phase") != "moving to the start":
                    send = """motion => fetch('motion', {method: 'POST', headers: {'Content-Type': 'application/json'},
                        body: JSON.stringify({env: 0, motion})}).then(answer => answer.ok)"""
                    first.evaluate(send, motion_to_hole(robot))
                time.sleep(1 / HZ)
            for name, page in pages.items():
                picture = Image.open(io.BytesIO(page.screenshot()))
                picture.convert("RGB").quantize(200).save(arguments.out / f"{name}.png", optimize=True)
    finally:
        for process in (run, simulated):
            process.terminate()
            process.wait(60)


if __name__ == "__main__":
    main()
