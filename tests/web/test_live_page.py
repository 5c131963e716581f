"""The page of a run in a browser: curves of a simulation, the success classifier, and runs that end and begin again."""

from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from playwright.sync_api import Browser, Page, expect
from robot_runs import SECONDS, Run

from rewardlab.live_state import LiveState
from rewardlab.web.live_page import LivePage
from rewardlab.web.server import PageServer

expect.set_options(timeout=1000 * SECONDS)


def serve(live: LiveState, port: int = 0) -> PageServer:
    return PageServer(LivePage(live).routes(), host="127.0.0.1", port=port, key="runner.page")


def drawn(page: Page, canvas: str) -> int:
    """Number of pixels of a canvas that are in the colour of the curve."""
    return int(
        page.evaluate(
            """([canvas]) => {
                const element = document.querySelector(canvas), pen = element.getContext('2d');
                const hex = getComputedStyle(document.documentElement).getPropertyValue('--accent').trim();
                const wanted = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
                const { data } = pen.getImageData(0, 0, element.width, element.height);
                let count = 0;
                for (let i = 0; i < data.length; i += 4)
                    count += data[i + 3] > 200 && wanted.every((value, j) => Math.abs(value - data[i + j]) < 40);
                return count;
            }""",
            [canvas],
        )
    )


def test_a_run_in_simulation_shows_curves_and_nothing_to_press(browser: Browser, tmp_path: Path, page: Page) -> None:
    small = ["env.train.num_envs=4", "env.eval.num_envs=2", "env.train.max_episode_steps=8"]
    small += ["algorithm.ppo.rollout_steps=8", "actor.global_batch_size=16", "runner.max_epochs=100000"]
    run = Run("tabletop_ppo_mlp", *small, f"runner.logger.log_path={tmp_path}", "runner.page.port=0")
    try:
        page.goto(run.url)
        titles = page.locator("#curves h2")
        expect(titles.filter(has_text="Success")).to_be_visible()
        expect(titles.filter(has_text="Return of an episode")).to_be_visible()
        expect(page.locator("[data-outcome=failure]")).to_be_visible()
        page.wait_for_function("document.querySelector('#curves canvas').width > 100")
        page.wait_for_timeout(1000)
        assert drawn(page, "#curves canvas") > 50
        assert page.locator("#stop").is_hidden()
        assert page.locator("#people").is_hidden()
        page.keyboard.press("Space")  # a key of robots means nothing here
        expect(page.locator(".banner")).to_have_count(0)
        assert run.interrupt() == 130
        expect(page.locator(".banner")).to_contain_text("The run was interrupted.")
    finally:
        run.close()


def test_the_classifier_is_drawn_against_its_threshold(page: Page) -> None:
    live = LiveState("a run")
    robot = live.env("robot", controls=True)
    robot.show(threshold=0.75, claims=2, hold_needed=3, axes="x y z", phase="acting")
    for probability in np.linspace(0, 0.9, 50):
        robot.show_probability(float(probability))
    live.say("camera 'wrist_camera': its picture is black", alarm=True)
    live.show(saved_episodes=7)
    with serve(live) as server:
        page.goto(server.url)
        expect(page.locator("#now")).to_have_text("0.900, threshold 0.750")
        expect(page.locator("#hold")).to_contain_text("Claims of the model in a row")
        expect(page.locator("#hold-count")).to_have_text("2 of 3")
        expect(page.locator("#pips .on")).to_have_count(2)
        expect(page.locator("#messages .alarm")).to_contain_text("its picture is black")
        expect(page.locator("#rows")).to_contain_text("Saved episodes")
        assert drawn(page, "#chart") > 100
        assert page.locator("#motions button").count() == 6


def test_what_a_robot_is_called_is_shown_as_it_is(page: Page) -> None:
    """Names and errors come from outside; the page writes them as text."""
    live, hostile = LiveState("<img src=x onerror=alert(1)>"), "<b id=injected>robot</b>"
    robot = live.env(hostile, controls=True)
    robot.show_frames({hostile: np.zeros((8, 8, 3), np.uint8)})
    robot.show(**{hostile: hostile, "phase": hostile})
    live.say(hostile, alarm=True)
    live.count_episode(hostile)
    with serve(live) as server:
        page.goto(server.url)
        expect(page.locator("#messages")).to_contain_text(hostile)
        expect(page.locator("#title")).to_have_text("<img src=x onerror=alert(1)>")
        assert page.locator("#injected").count() == 0


def test_the_page_says_what_happened_to_its_run_and_goes_on_with_the_next(page: Page) -> None:
    first = LiveState("the first run")
    first.env("robot", controls=True)
    with serve(first) as server:
        port = urlsplit(server.url).port or 0
        page.goto(server.url)
        expect(page.locator("#status")).to_contain_text("running")
        first.count_episode("success")
        expect(page.locator("[data-outcome=success]")).to_be_visible()
    # The process was killed: nobody said that the run ended.
    expect(page.locator("#status")).to_have_text("connection lost")
    expect(page.locator(".banner.alarm")).to_contain_text("use its emergency stop")
    page.keyboard.press("Space")
    expect(page.locator(".banner.alarm")).to_contain_text(["STOP did not reach the run", "Connection lost"])

    second = LiveState("the second run")
    with serve(second, port) as server:
        expect(page.locator("#title")).to_have_text("the second run")
        expect(page.locator("#status")).to_contain_text("running")
        expect(page.locator(".banner")).to_have_count(0)
        assert page.locator("#outcomes").is_hidden()
        second.end("The run has ended as planned.")
        expect(page.locator(".banner")).to_contain_text("The run has ended as planned.")


def test_a_stop_that_fails_is_said_in_red(page: Page) -> None:
    live = LiveState("a run")
    robot = live.env("http://robot:5000", controls=True)

    def fail() -> None:
        raise OSError("no route to host")

    robot.on_stop(fail)
    with serve(live) as server:
        page.goto(server.url)
        page.locator("#stop").click()
        expect(page.locator(".banner.alarm")).to_contain_text("STOP FAILED: no route to host")
        expect(page.locator(".banner.alarm")).to_have_css("background-color", "rgb(200, 30, 30)")


def test_a_held_motion_ends_where_the_page_loses_the_keyboard(page: Page) -> None:
    live = LiveState("a run")
    robot = live.env("robot", controls=True)
    robot.show(axes="x y z")
    with serve(live) as server:
        page.goto(server.url)
        expect(page.locator("#motions button")).to_have_count(6)
        page.keyboard.down("ArrowUp")
        expect(page.locator("[data-axis=x].held")).to_have_count(1)
        page.evaluate("window.dispatchEvent(new Event('blur'))")
        expect(page.locator(".held")).to_have_count(0)
        page.wait_for_timeout(500)
        assert robot.motion() is None


def test_everything_fits_on_a_phone(browser: Browser) -> None:
    live = LiveState("Training on robot/peg_insertion (realworld_peginsertion_rlpd_cnn_async)")
    for name in ("http://172.16.0.1:5000", "http://172.16.0.2:5000"):
        robot = live.env(name, controls=True)
        robot.show(axes="x y z roll pitch yaw gripper", phase="acting", hold=1, hold_needed=20)
        robot.show_frames({"base_camera": np.zeros((64, 64, 3), np.uint8)})
    live.say("x" * 300)
    context = browser.new_context(viewport={"width": 375, "height": 667}, has_touch=True)
    try:
        with serve(live) as server:
            page = context.new_page()
            page.goto(server.url)
            expect(page.locator("#motions button")).to_have_count(14)
            assert page.evaluate("document.documentElement.scrollWidth") <= 375
            box = page.locator("#stop").bounding_box()
            assert box is not None
            assert box["width"] > 300
            assert box["y"] + box["height"] <= 667
            page.locator("#stop").tap()
            expect(page.locator(".banner")).to_contain_text("Stopped")
            assert robot.take_events() == ["stop"]
    finally:
        context.close()
