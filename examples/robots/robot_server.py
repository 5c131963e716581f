"""A robot behind five POST calls, for `type: http` in a config of rewardlab: Python 3.6 or later, nothing to install.

    python3 robot_server.py --host 0.0.0.0 --port 8000

Put your arm into the class Arm; the one here is a point that follows its commands.
"""

import argparse
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn

SPEED = 0.25  # metres in a second


class Arm:
    def __init__(self):
        self.pose = self.target = [0.5, 0.0, 0.25, 1.0, 0.0, 0.0, 0.0]  # x, y, z (m), quaternion x, y, z, w
        self.gripper, self.then, self.lock = 0.0, time.time(), threading.RLock()

    def spaces(self):
        return {"gripper": True}

    def observe(self):
        with self.lock:
            seconds, self.then = time.time() - self.then, time.time()
            gap = [self.target[axis] - self.pose[axis] for axis in range(3)]
            share = min(1.0, SPEED * seconds / max(sum(g * g for g in gap) ** 0.5, 1e-9))
            self.pose = [self.pose[axis] + share * gap[axis] for axis in range(3)] + self.target[3:]
            return dict(pose=self.pose, velocity=[0] * 6, force=[0] * 3, torque=[0] * 3, gripper=self.gripper)

    def act(self, pose, gripper):  # a gripper of None stays as it is; return what was really sent
        with self.lock:
            self.observe()  # it has moved until now
            self.target, self.gripper = pose, self.gripper if gripper is None else gripper
            return {"pose": pose, "gripper": self.gripper}

    def reset(self, joints):  # clear errors and be ready to be moved; with `joints`, move home first
        return {}

    def stop(self):  # hold still at once, also while another call is being answered
        with self.lock:
            self.target = self.observe()["pose"]
            return {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open

    def do_POST(self):
        body = json.loads((self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}").decode())
        try:
            call = {name: getattr(self.server.arm, name) for name in ("spaces", "observe", "act", "reset", "stop")}
            status, answer = 200, json.dumps(call[self.path[1:]](**body)).encode()
        except Exception as error:  # "emergency" in an answer says that only a person can go on
            status, answer = 500, f"{type(error).__name__}: {error}".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        """Print no line for each call."""


class Server(ThreadingMixIn, HTTPServer):  # a thread for each connection: a stop waits for nothing
    daemon_threads = True


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    server = Server((options.host, options.port), Handler)
    server.arm = Arm()
    print("robot at http://{}:{}".format(*server.server_address[:2]), flush=True)
    server.serve_forever()
