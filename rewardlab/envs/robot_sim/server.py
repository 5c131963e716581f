"""The HTTP server of the simulated robot: connections that stay open, a thread for each."""

import errno
import random
import socketserver
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rewardlab.envs.robot_sim.bench import Bench
from rewardlab.envs.robot_sim.calls import Answer, Calls
from rewardlab.envs.robot_sim.faults import Faults
from rewardlab.envs.robot_sim.pictures import PATHS, Pictures
from rewardlab.errors import ConfigError

LARGEST_BODY = 1_000_000  # bytes
STREAM_HZ = 30.0  # pictures of a stream in a simulated second
MOST_STREAM_HZ = 60.0
BOUNDARY = "frame"


@dataclass(frozen=True)
class SimOptions:
    """What `rewardlab robot-sim` takes."""

    task: str = "peg_insertion"
    host: str = "127.0.0.1"
    port: int = 5000
    speed: float = 1.0  # simulated seconds in a second
    image_size: int = 128
    seed: int = 0
    faults: Faults = field(default_factory=Faults)


class SimServer(ThreadingHTTPServer):
    """Bench, cameras and calls behind one port."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, options: SimOptions) -> None:
        self.options = options
        self.bench = Bench(options.task, speed=options.speed, seed=options.seed)
        self.calls = Calls(self.bench, options.faults, options.seed)
        self.pictures = Pictures(self.bench, options.image_size, options.seed)
        self.chance = random.Random(options.seed)  # what jitter and lost calls are drawn from
        self.closing = threading.Event()
        try:
            super().__init__((options.host, options.port), Handler)
        except OSError as error:
            place = f"port {options.port} of {options.host}"
            if error.errno == errno.EADDRINUSE:
                raise ConfigError(f"--port: {place} is taken by another program; choose another, or 0") from None
            raise ConfigError(f"--host, --port: {place} cannot be opened ({error.strerror})") from error
        self.bench.start()

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer would ask a name server

    @property
    def address(self) -> str:
        host, port = self.server_address[:2]
        return f"{host!s}:{port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not print that a client has gone: a connection that ends in the middle is nothing special here."""

    def close(self) -> None:
        self.closing.set()
        self.server_close()
        self.bench.close()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and content leave in one packet
    server: SimServer

    def do_GET(self) -> None:
        self._answer("GET", b"")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            self.close_connection = True
            self._send(Answer(413, f"expected a body of at most {LARGEST_BODY} bytes".encode()))
            return
        self._answer("POST", self.rfile.read(int(length)))

    def _answer(self, method: str, body: bytes) -> None:
        path = self.path.partition("?")[0]
        faults = self.server.calls.faults
        if not path.startswith("/sim/"):
            if faults.latency or faults.jitter:
                time.sleep(faults.latency + self.server.chance.random() * faults.jitter)
            if faults.dropped and self.server.chance.random() < faults.dropped:
                self.close_connection = True
                return
        if path not in PATHS:
            self._send(self.server.calls.answer(method, path, body))
        elif PATHS[path] in faults.camera_gone:
            self._send(Answer(503, f"the camera {PATHS[path]} is not connected".encode()))
        elif path.endswith(".jpg"):
            self._send(Answer(200, self.server.pictures.take(PATHS[path], faults), "image/jpeg"))
        else:
            self._stream(PATHS[path])

    def _send(self, answer: Answer) -> None:
        # Not through send_header: that formats the date anew, and a client of 100 Hz has no use for it.
        phrase = HTTPStatus(answer.status).phrase
        head = f"HTTP/1.1 {answer.status} {phrase}\r\nContent-Type: {answer.kind}\r\n"
        close = "Connection: close\r\n" if self.close_connection else ""
        self.wfile.write(f"{head}{close}Content-Length: {len(answer.content)}\r\n\r\n".encode() + answer.content)
        self.wfile.flush()

    def _stream(self, camera: str) -> None:
        """Send pictures until the client goes, or the camera does."""
        self.close_connection = True
        head = f"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary={BOUNDARY}\r\n"
        self.wfile.write(f"{head}Connection: close\r\n\r\n".encode())
        period = 1 / min(STREAM_HZ * self.server.options.speed, MOST_STREAM_HZ)
        while camera not in self.server.calls.faults.camera_gone:
            jpeg = self.server.pictures.take(camera, self.server.calls.faults)
            part = f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n\r\n"
            self.wfile.write(part.encode() + jpeg + b"\r\n")
            self.wfile.flush()
            if self.server.closing.wait(period):
                return

    def log_message(self, format: str, *args: Any) -> None:
        """Do not print a line for each call."""
