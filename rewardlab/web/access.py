"""Who may use a page server: checks every request before it reaches a page.

A page can stop and move a robot, so a page of somebody else that is open in the same browser must not be able to send
requests (CSRF), nor to reach the server under a name of its own (DNS rebinding). A server that other machines can
reach also wants the token that is a part of its URL.
"""

import ipaddress
import secrets
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",  # the URL has the token
    "x-content-type-options": "nosniff",
}


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach a server at this address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Access:
    """Refuses requests that do not come from a page of this server, and adds headers that protect the pages.

    Without a token, the server is meant for this machine alone, and wants to be called by a name of it.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # there are no web sockets here
            return
        path = self._path_inside(scope["path"])
        refusal = self._refusal(scope["method"], Headers(scope=scope), path)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        if refusal is not None:
            await PlainTextResponse(refusal, 403)(scope, receive, send_with_headers)
        else:
            inner = {**scope, "path": path, "raw_path": str(path).encode()}
            await self.app(inner, receive, send_with_headers)

    def _path_inside(self, path: str) -> str | None:
        """Return a path without the token before it; None if that is missing or another one."""
        if self.token is None:
            return path
        given, slash, rest = path.removeprefix("/").partition("/")
        known = secrets.compare_digest(given.encode(), self.token.encode())
        return f"/{rest}" if known and slash else None

    def _refusal(self, method: str, headers: Headers, path: str | None) -> str | None:
        """Return why a request is refused, or None."""
        if path is None:
            return "The token is missing or another one. Open the whole address that the run printed when it started."
        host = headers.get("host", "")
        if self.token is None and not is_loopback(_host_of(f"//{host}")):
            return "This page is for this machine only: open it as http://localhost:<port>/."
        origin = headers.get("origin")
        if origin not in (None, f"http://{host}", f"https://{host}"):  # the latter behind a proxy
            return "Requests from pages of other servers are refused."
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and method != "GET":
            return "Requests from pages of other servers are refused."
        # What a form of another page could send without asking the browser first.
        if method == "POST" and headers.get("content-type", "").partition(";")[0] != "application/json":
            return "Expected JSON with the content type application/json."
        return None


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # such as "//["
        return ""
