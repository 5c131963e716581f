"""A headless browser, whose pages must report no errors; tests that need it are skipped where there is none."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

sys.path.insert(0, str(Path(__file__).parent))

from browser import find_chromium, launched
from robot_runs import SECONDS


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one module: while it runs, Playwright's event loop would be in the way of others in this thread."""
    path = find_chromium()
    if path is None:
        pytest.skip("there is no Chromium: make browser")
    with launched(path) as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_default_timeout(1000 * SECONDS)
    yield page
    context.close()
    assert not errors
