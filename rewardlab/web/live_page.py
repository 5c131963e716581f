"""The live page of a run: what happens now, and buttons to label, move and stop robots.

The page asks for the state a few times a second and draws it; a server that does not answer is shown as a connection
that is lost. Pictures are encoded here, in threads of the server, and only if somebody looks at them.
"""

import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import cv2
import numpy as np
from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from rewardlab.live_state import LABELS, RESUME, Frame, LiveEnv, LiveState
from rewardlab.web.server import render

QUALITY = 85  # of JPEGs
LARGEST_BODY = 10_000  # bytes
AXES = 7  # of a motion: x, y, z, roll, pitch, yaw, gripper

Endpoint = Callable[[Request], Awaitable[Response]]


class BadRequest(ValueError):
    """What a request asks for cannot be done; its text says what was expected."""


class LivePage:
    """Answers the requests of the page."""

    def __init__(self, live: LiveState) -> None:
        self.live = live
        self._encoded: dict[tuple[str, str], tuple[int, bytes]] = {}  # newest JPEG by environment and camera
        self._stopping: CapacityLimiter | None = None

    def routes(self) -> list[BaseRoute]:
        endpoints: dict[str, Endpoint] = {"/": self.page, "/state": self.state, "/curves": self.curves}
        actions: dict[str, Endpoint] = {"/stop": self.stop, "/press": self.press, "/motion": self.motion}
        return [
            *(Route(path, _answering(endpoint)) for path, endpoint in {**endpoints, "/frame": self.frame}.items()),
            *(Route(path, _answering(endpoint), methods=["POST"]) for path, endpoint in actions.items()),
        ]

    async def page(self, request: Request) -> Response:
        return render("live.html", title=self.live.title)

    async def state(self, request: Request) -> Response:
        return _json(asdict(self.live.snapshot()))

    async def curves(self, request: Request) -> Response:
        """Answer with the curves of the metrics that are asked for: `?name=...&name=...`."""
        curves = self.live.curves()
        return _json({name: curves[name] for name in request.query_params.getlist("name") if name in curves})

    async def frame(self, request: Request) -> Response:
        """Answer with the newest picture of a camera as a JPEG, or 204 if that is the one `after` a number."""
        env, camera = self._env(request.query_params.get("env")), request.query_params.get("camera", "")
        newest = env.frame(camera)
        if newest is None:
            return PlainTextResponse("there is no picture of this camera", 404)
        number, frame = newest
        if request.query_params.get("after") == str(number):
            return Response(status_code=204)
        cached = self._encoded.get((env.name, camera))
        if cached is None or cached[0] != number:
            cached = number, await to_thread.run_sync(_jpeg, frame)
            self._encoded[env.name, camera] = cached
        return Response(cached[1], media_type="image/jpeg", headers={"X-Frame-Number": str(number)})

    async def stop(self, request: Request) -> Response:
        """Stop all robots at once, in a thread that nothing else of the page uses."""
        if self._stopping is None:
            self._stopping = CapacityLimiter(100)
        problems = await to_thread.run_sync(self.live.stop, limiter=self._stopping)
        return _json({"problems": problems})

    async def press(self, request: Request) -> Response:
        body = await _body(request)
        event = body.get("event")
        if event == RESUME:
            self.live.resume()
        elif event in LABELS:
            self._env(body.get("env"), controls=True).press(event)
        else:
            raise BadRequest(f"event: found {event!r}, expected one of {', '.join((*LABELS, RESUME))}")
        return _json({})

    async def motion(self, request: Request) -> Response:
        body = await _body(request)
        motion = body.get("motion")
        if not (
            isinstance(motion, list)
            and len(motion) == AXES
            and all(type(share) in (int, float) and -1 <= share <= 1 for share in motion)
        ):
            raise BadRequest(f"motion: expected {AXES} numbers from -1 to 1")
        self._env(body.get("env"), controls=True).hold(motion)
        return _json({})

    def _env(self, number: Any, *, controls: bool = False) -> LiveEnv:
        envs = self.live.envs
        text = str(number)
        if not text.isdecimal() or len(text) > 9 or int(text) >= len(envs):
            raise BadRequest(f"env: found {text[:20]!r}, expected the number of one of {len(envs)} environments")
        env = envs[int(text)]
        if controls and not env.controls:
            raise BadRequest(f"env: {env.name} is not moved by people")
        return env


def _answering(endpoint: Endpoint) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except BadRequest as error:
            return PlainTextResponse(str(error), 400)

    return answer


async def _body(request: Request) -> dict[str, Any]:
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > LARGEST_BODY:
        raise BadRequest(f"expected a body of at most {LARGEST_BODY} bytes")
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise BadRequest("expected a JSON object")
    return body


def _json(value: Any) -> Response:
    return JSONResponse(_plain(value))


def _plain(value: Any) -> Any:
    """Return a value as JSON can have it: what is not finite as null, numbers of NumPy as Python's."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _jpeg(frame: Frame) -> bytes:
    _, jpeg = cv2.imencode(".jpg", np.ascontiguousarray(frame[..., ::-1]), [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return jpeg.tobytes()
