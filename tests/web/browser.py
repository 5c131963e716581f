"""Finds the Chromium that the tests of web pages run in; as a script (`make browser`), installs one if there is none.

On Debian and Ubuntu it comes from apt, for which root or sudo is needed; elsewhere it is Playwright's own.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Without a sandbox, as in containers run by root; and without calls to servers of the browser's maker.
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
]


def find_chromium() -> str | None:
    """Return the path of the system's Chromium, or of Playwright's own."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


@contextmanager
def launched(path: str) -> Iterator[Browser]:
    """A headless browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def install() -> None:
    """Install a Chromium: from apt where that can be, else Playwright's own."""
    as_root = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    if shutil.which("apt-get") and (not as_root or shutil.which("sudo")):
        print("make browser: installing the package chromium with apt-get ...", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        updated = subprocess.run([*as_root, "apt-get", "update", "-qq"], check=False).returncode == 0
        command = [*as_root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
        if updated and subprocess.run(command, check=False, env=environment).returncode == 0 and find_chromium():
            return
        print("make browser: that did not work; trying Playwright's own Chromium ...", flush=True)
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=True)


if __name__ == "__main__":
    if found := find_chromium():
        print(f"make browser: {found} is there; nothing to do")
    else:
        install()
        print(f"make browser: installed {find_chromium()}")
