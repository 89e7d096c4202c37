"""Worker processes of `serve` that begin with their packages imported, like `serve` itself (prepared.py).

Before `serve` begins it forks a process that forks for each worker. A worker is handed over to `serve` as its child.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from typing import Any

MODULE = "taskstore_project.serving.worker_process"
NAME = b"forks workers"  # By which tests that look at the children of `serve` know the process.
MOST_BYTES = 2**18
BEYOND = 500  # Descriptors that are on their way to their place.
# prctl(2)
NAME_OF_PROCESS = 15
ADOPTS_ORPHANS = 36

prctl = ctypes.CDLL(None).prctl
execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]


def prepare_workers() -> None:
    """Whatever starts a worker in this process gets a prepared one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        ours.close()
        fork_workers(theirs)
    theirs.close()

    def execute_child(self: Any, args: Any, executable: Any, preexec: Any, close: Any, fds: Any, *others: Any) -> None:
        if MODULE not in args:
            execute(self, args, executable, preexec, close, fds, *others)
            return
        _, environment, _, _, _, *pipes = others[:11]
        places = {0: pipes[0], 1: pipes[3], 2: 2} | {descriptor: descriptor for descriptor in fds}
        order = json.dumps([args[-1], dict(environment), list(places)]).encode()
        prctl(ADOPTS_ORPHANS, 1)
        socket.send_fds(ours, [order], list(places.values()))
        self.pid = int(ours.recv(16))
        prctl(ADOPTS_ORPHANS, 0)
        self._child_created = True
        self._close_pipe_fds(*pipes)

    subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]


def fork_workers(orders: socket.socket) -> None:
    """Returns never: each worker runs its module, and this process ends with the one that orders them."""
    prctl(NAME_OF_PROCESS, NAME)
    # Ctrl-C reaches all processes of a terminal, but only `serve` is to act on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, MOST_BYTES, 8)
        if not order:
            os._exit(0)
        between = os.fork()
        if not between:
            # The parent of an orphan is `serve`.
            between = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.001)
            orders.send(str(os.getpid()).encode())
            run_worker(descriptors, *json.loads(order))
        os.waitpid(between, 0)
        for descriptor in descriptors:
            os.close(descriptor)


def run_worker(descriptors: list[int], argument: str, environment: dict[str, str], places: list[int]) -> None:
    prctl(NAME_OF_PROCESS, b"python")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    waiting = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, BEYOND) for descriptor in descriptors]
    for own, place in zip(waiting, places, strict=True):
        os.dup2(own, place)
    for descriptor in range(3, 1_000):
        if descriptor not in places:
            os.closerange(descriptor, descriptor + 1)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["worker_process.py", argument]
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
    os._exit(0)
