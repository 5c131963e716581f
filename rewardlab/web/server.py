"""Serves pages from a thread of this process."""

import errno
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import uvicorn
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from rewardlab.errors import ConfigError
from rewardlab.web.access import Access, is_loopback

STATIC = Path(__file__).parent / "static"
SECONDS_TO_START = 10.0
SECONDS_TO_STOP = 5.0
LOOKED_AT = 2.0  # seconds since the last request in which somebody counts as looking
LAST_LOOK = 1.0  # seconds that those who look get to see how a run ended


class PageServer:
    """Starts with the `with` block and ends with it; `url` is where people find it.

    `key` is the block of the config that host and port are from, for messages.
    """

    def __init__(self, routes: Sequence[BaseRoute], *, host: str, port: int, key: str) -> None:
        token = None if is_loopback(host) else secrets.token_urlsafe(16)
        self._token = token
        self._last_request = -LOOKED_AT
        app = Starlette(routes=[*routes, Mount("/static", StaticFiles(directory=STATIC))])
        access = Access(app, token)

        async def noting(scope: Scope, receive: Receive, send: Send) -> None:
            self._last_request = time.monotonic()
            await access(scope, receive, send)

        self._socket = _open_socket(host, port, key)
        self._server = uvicorn.Server(
            uvicorn.Config(
                noting,
                lifespan="off",
                access_log=False,
                log_config=None,
                log_level="error",
                loop="asyncio",
                http="h11",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._run, name="page server", daemon=True)

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        if host in ("0.0.0.0", "::"):
            host = socket.gethostname()
        token = "" if self._token is None else f"{self._token}/"
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/{token}"

    def __enter__(self) -> Self:
        self._thread.start()
        end = time.monotonic() + SECONDS_TO_START
        while not self._server.started and self._thread.is_alive() and time.monotonic() < end:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        if time.monotonic() - self._last_request < LOOKED_AT:
            time.sleep(LAST_LOOK)
        self._server.should_exit = True
        self._thread.join(SECONDS_TO_STOP)
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])


def _open_socket(host: str, port: int, key: str) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except (OSError, UnicodeError, ValueError) as error:  # the last two: of a name that cannot be one
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"{key}.port: port {port} of {host} is taken, perhaps by another run; choose another port, 0 for any "
                "that is free, or null for no page"
            ) from None
        raise ConfigError(
            f"{key}.host, {key}.port: {host}:{port} cannot be opened ({getattr(error, 'strerror', error)})"
        ) from error


def render(template: str, **values: Any) -> HTMLResponse:
    """Return a page made from a template."""
    return HTMLResponse(_TEMPLATES.get_template(template).render(values))


_TEMPLATES = Environment(
    loader=PackageLoader("rewardlab.web"),
    autoescape=select_autoescape(),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
