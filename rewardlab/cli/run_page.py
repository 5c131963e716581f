"""Gives a run its page, if its config asks for one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rewardlab.errors import StoppedByAlarm

if TYPE_CHECKING:
    from rich.console import Console

    from rewardlab.config import ExperimentConfig
    from rewardlab.live_state import LiveState

VERBS = {"collect": "Collecting on", "train_policy": "Training on"}


@contextmanager
def run_page(cfg: "ExperimentConfig", console: "Console | None" = None) -> "Iterator[LiveState | None]":
    """Serve the page of a run while the block runs, and give what the run writes to; None without a page."""
    port, host = cfg.runner.page.port, cfg.runner.page.host
    if port is None:
        yield None
        return
    from rewardlab.console import make_console, print_line
    from rewardlab.live_state import LiveState
    from rewardlab.web.live_page import LivePage
    from rewardlab.web.server import PageServer

    name = cfg.runner.logger.experiment_name
    live = LiveState(f"{VERBS[cfg.runner.task]} {cfg.env.train.task}{f' ({name})' if name else ''}")
    with PageServer(LivePage(live).routes(), host=host, port=port, key="runner.page") as server:
        print_line(console or make_console(), f"page: {server.url}")
        try:
            yield live
        except KeyboardInterrupt:
            live.end("The run was interrupted.")
            raise
        except StoppedByAlarm as error:
            live.end(f"The run has {error}", alarm=True)
            raise
        except BaseException as error:
            live.end(f"The run has ended with an error: {error}", alarm=True)
            raise
        live.end("The run has ended as planned.")
