"""The page of a run that moves a simulated robot: what it shows is so, and what is pressed on it happens."""

import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect
from robot_runs import SECONDS, Run, simulated_robot, write_robot_config

from rewardlab.envs.robot_sim.server import SimServer

expect.set_options(timeout=1000 * SECONDS)


@pytest.fixture(scope="module")
def robot() -> Iterator[SimServer]:
    with simulated_robot() as server:
        yield server


@pytest.fixture(scope="module")
def run(browser: Browser, robot: SimServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    run = Run(str(write_robot_config(tmp_path_factory.mktemp("robot") / "run.yaml", robot.address)))
    yield run
    run.close()


@pytest.fixture
def live(page: Page, run: Run) -> Page:
    page.goto(run.url)
    wait_until(lambda: number(page, "Environment steps") > 0)
    return page


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def number(page: Page, title: str) -> float:
    """A row of the numbers; 0 if it is not shown."""
    words = page.evaluate(
        "title => [...document.querySelectorAll('dt')].find(dt => dt.textContent === title)?.nextSibling.textContent",
        title,
    )
    return float(words.split()[0].replace(",", "")) if words else 0.0


def count(page: Page, outcome: str) -> int:
    found = page.locator(f"[data-outcome={outcome}] b")
    return int(found.inner_text()) if found.count() else 0


def commands(robot: SimServer) -> int:
    return int(robot.calls.statistics.values()["commands"])


def height(robot: SimServer) -> float:
    return float(robot.bench.measured.pose[2])


def wait_until_acting(page: Page) -> None:
    expect(page.locator("#phase")).to_have_text("acting")


def test_cameras_show_new_pictures(live: Page) -> None:
    pictures = live.locator("#cameras img")
    expect(pictures).to_have_count(2)
    assert live.locator("figcaption").all_inner_texts() == ["base_camera", "wrist_camera"]
    read = """async () => {
        const picture = document.querySelector('#cameras img'), canvas = document.createElement('canvas');
        await picture.decode();
        [canvas.width, canvas.height] = [picture.naturalWidth, picture.naturalHeight];
        const pen = canvas.getContext('2d');
        pen.drawImage(picture, 0, 0);
        return [canvas.width, canvas.height, ...pen.getImageData(0, 0, 64, 64).data];
    }"""
    wait_until(lambda: bool(pictures.first.get_attribute("src")))
    first = live.evaluate(read)
    assert first[:2] == [64, 64]
    wait_until(lambda: np.abs(np.subtract(live.evaluate(read), first)).mean() > 1)


@pytest.mark.parametrize("way", ["button", "key"])
def test_stop_stops_the_robot_until_it_is_let_go_on(live: Page, robot: SimServer, way: str) -> None:
    wait_until_acting(live)
    discarded = count(live, "discarded")
    live.locator("#stop").click() if way == "button" else live.keyboard.press("Space")

    expect(live.locator(".banner")).to_contain_text("Stopped")
    expect(live.locator("#phase")).to_have_text("stopped")
    expect(live.locator("[data-press=success]")).to_be_disabled()
    sent, place = commands(robot), robot.bench.measured.pose[:3].copy()
    time.sleep(1)
    assert commands(robot) == sent
    assert np.abs(robot.bench.measured.pose[:3] - place).max() < 0.002

    live.locator("#resume").click() if way == "button" else live.keyboard.press("c")
    expect(live.locator(".banner")).to_have_count(0)
    wait_until(lambda: commands(robot) > sent)
    wait_until(lambda: count(live, "discarded") == discarded + 1)
    expect(live.locator("#messages")).to_contain_text("stopped by a person")


@pytest.mark.parametrize(
    ("key", "event", "outcome"), [("1", "success", "success"), ("0", "failure", "failure"), ("r", "redo", "redo")]
)
def test_labels_end_episodes(live: Page, key: str, event: str, outcome: str) -> None:
    for press in (lambda: live.keyboard.press(key), lambda: live.locator(f"[data-press={event}]").click()):
        wait_until_acting(live)
        before = count(live, outcome)
        press()
        wait_until(lambda before=before: count(live, outcome) > before)


@pytest.mark.parametrize("way", ["button", "key"])
def test_the_arm_moves_as_long_as_a_motion_is_held(live: Page, robot: SimServer, way: str) -> None:
    wait_until_acting(live)
    live.keyboard.press("r")  # an episode of its own: the motion shall not end with one
    expect(live.locator("#phase")).not_to_have_text("acting")
    wait_until_acting(live)
    before = number(live, "Steps moved by a person")
    if way == "key":
        live.keyboard.down("e")
    else:
        live.locator("[data-axis=z][data-direction='1']").hover()
        live.mouse.down()
    wait_until(lambda: height(robot) > 0.28)  # near the top of the workspace, where chance does not lead
    live.keyboard.up("e") if way == "key" else live.mouse.up()
    wait_until_acting(live)
    wait_until(lambda: number(live, "Steps moved by a person") > before)


def test_rates_and_counts_are_those_of_the_run(live: Page, robot: SimServer) -> None:
    assert 0 < number(live, "Control rate") <= 1.1 * 50
    wait_until(lambda: number(live, "Clipped commands") > 0)
    assert live.locator("#hold-count").inner_text() == "0 of 3"


def test_two_tabs_show_the_same_robot(live: Page, run: Run) -> None:
    other = live.context.new_page()
    other.goto(run.url)
    expect(other.locator("#stop")).to_be_visible()
    live.locator("#stop").click()
    expect(other.locator("#phase")).to_have_text("stopped")
    other.locator("#resume").click()
    expect(live.locator(".banner")).to_have_count(0)


def test_the_page_can_be_loaded_again(live: Page) -> None:
    before = number(live, "Environment steps")
    live.reload()
    wait_until(lambda: number(live, "Environment steps") >= before)
    expect(live.locator("#cameras img")).to_have_count(2)


def test_ctrl_c_ends_a_run_that_somebody_has_stopped(live: Page, run: Run, robot: SimServer) -> None:
    """The last test of this run."""
    wait_until_acting(live)
    live.keyboard.press("Space")
    expect(live.locator("#phase")).to_have_text("stopped")
    assert run.interrupt() == 130
    expect(live.locator("#status")).to_contain_text("ended")
    expect(live.locator(".banner")).to_contain_text("interrupted")


def test_a_person_records_an_episode_through_the_page(
    browser: Browser, robot: SimServer, tmp_path: Path, page: Page
) -> None:
    config = "examples/embodiment/config/realworld_collect_data.yaml"
    own = [f"cluster.node_groups=[{{hardware: {{type: Franka, configs: [{{robot_ip: '{robot.address}'}}]}}}}]"]
    own += ["runner.page.port=0", "data.collection.policy=still", f"data.collection.save_dir={tmp_path}"]
    own += ["runner.num_data_episodes=1", "env.train.max_episode_steps=10000", f"env.train.options.control_hz={50}"]
    run = Run(str(Path(__file__).parents[2] / config), *own)
    try:
        page.goto(run.url)
        wait_until_acting(page)
        assert page.locator("#hold-count").inner_text() == "0 of 20"
        page.keyboard.down("ArrowLeft")
        wait_until(lambda: number(page, "Steps moved by a person") > 5)
        page.keyboard.up("ArrowLeft")
        wait_until_acting(page)
        page.keyboard.press("1")
        assert run.process.wait(SECONDS) == 0
        expect(page.locator(".banner")).to_contain_text("The run has ended as planned.")
        assert count(page, "success") == 1
    finally:
        run.close()
    steps = pickle.loads((tmp_path / "data.pkl").read_bytes())
    assert steps[-1]["rewards"] == 1
    to_the_left = [step for step in steps if step["actions"][1] == 1]
    assert len(to_the_left) > 5
    assert not any(np.any(step["actions"][[0, 2]]) for step in to_the_left)


def test_a_stop_is_for_all_robots_and_a_label_for_one(
    browser: Browser, robot: SimServer, tmp_path: Path, page: Page
) -> None:
    with simulated_robot() as second:
        run = Run(str(write_robot_config(tmp_path / "two.yaml", robot.address, second.address)))
        try:
            page.goto(run.url)
            expect(page.locator("#cameras img")).to_have_count(4)
            choose: Any = page.locator("#env").select_option
            for number in ("1", "0"):
                choose(number)
                wait_until_acting(page)
            page.locator("#stop").click()
            for number in ("1", "0"):
                choose(number)
                expect(page.locator("#phase")).to_have_text("stopped")
            sent = commands(robot), commands(second)
            time.sleep(0.5)
            assert (commands(robot), commands(second)) == sent
            page.locator("#resume").click()
            wait_until(lambda: commands(robot) > sent[0] and commands(second) > sent[1])
            choose("1")
            wait_until_acting(page)
            page.keyboard.press("1")
            wait_until(lambda: count(page, "success") == 1)
        finally:
            run.close()
