"""What runs in the process of a `ProcessWorker`: it answers its calls, one after the other."""

import faulthandler
import os
import sys
from multiprocessing.connection import Connection

import cv2

from rewardlab.child_process import end_with_parent
from rewardlab.workers.process_worker import serve


def main(connection: int, parent: int) -> None:
    end_with_parent(parent)
    faulthandler.enable()
    cv2.setNumThreads(1)
    with Connection(connection) as channel:
        serve(channel.recv_bytes, channel.send_bytes)
    sys.stdout.flush()
    os._exit(0)  # what is left running are threads of the worker


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
