"""Commands of the project in processes that begin with their packages imported, which is most of what a start takes.

One process beside the tests imports the packages and forks for each command. It knows no settings and has nothing of
the server itself imported. Tests of the start use the fixture `new_interpreters` instead (conftest.py).
"""

from __future__ import annotations

import ctypes
import functools
import gc
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from lab.testing import PROJECT

from .prepared_workers import prepare_workers

PREPARED = {
    *("asgiref", "autobahn", "channels", "click", "csp", "cryptography", "django", "drf_spectacular"),
    *("environs", "google", "grpc", "httpx", "markdown_it", "msgspec", "prometheus_client", "psycopg"),
    *("psycopg_pool", "requests", "rest_framework", "rich", "taskstore", "twisted", "uvicorn", "uvloop"),
    *("websockets", "whitenoise", "yaml", "zope"),
}
# They begin an event loop when they are imported.
LOOPS = ("daphne", "twisted.internet.reactor")
MOST_BYTES = 2**18
SIGNAL_OF_PARENTS_DEATH = 1  # prctl(2)


class PreparedProcess(subprocess.Popen[str]):
    """A Popen of `manage.py` with `args` as its arguments."""

    def _execute_child(self, args: Any, executable: Any, preexec: Any, close: Any, fds: Any, *others: Any) -> None:
        cwd, environment, _, _, _, *pipes = others[:11]
        ours, theirs = socket.socketpair()
        standard = [pipe if pipe >= 0 else own for pipe, own in zip(pipes[1::2][-2:], (1, 2), strict=True)]
        with theirs:
            order = json.dumps([list(map(str, args)), str(cwd), dict(environment)]).encode()
            orders, _ = forker()
            socket.send_fds(orders, [order], [*standard, theirs.fileno()])
        self._ended = ours
        self.pid = int(ours.recv(16))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        at_most_s = 0 if wait_flags & os.WNOHANG else None
        if not select.select([self._ended], [], [], at_most_s)[0]:
            return 0, 0
        with self._ended:
            return self.pid, int(self._ended.recv(16) or signal.SIGKILL)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]
        return self.returncode


@functools.cache
def forker() -> tuple[socket.socket, int]:
    """Where the process that forks takes orders, and its id. It ends when nobody can give it orders any more."""
    import_module("taskstore_project.urls")
    names = [name for name in sys.modules if name.partition(".")[0] in PREPARED and not name.startswith(LOOPS)]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    with theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        theirs.set_inheritable(True)
        pid = os.posix_spawn(sys.executable, [sys.executable, "-m", __name__, str(theirs.fileno())], environment)
    ours.send(json.dumps(names).encode())
    return ours, pid


def end_forker() -> None:
    if forker.cache_info().currsize:
        orders, pid = forker()
        orders.close()
        os.waitpid(pid, 0)  # What its children took of the CPU is counted to this process.


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # It ends with the tests.
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        for name in json.loads(orders.recv(MOST_BYTES)):
            with suppress(Exception):  # Some need the settings.
                import_module(name)
        gc.collect()
        gc.freeze()
        arguments, folder, environment, standard = order_of_this_child(orders)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ctypes.CDLL(None).prctl(SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL)
    for own, descriptor in enumerate(standard, start=1):
        os.dup2(descriptor, own)
    os.closerange(3, 1_000)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    if arguments[:1] == ["serve"]:
        prepare_workers()
    sys.argv = ["manage.py", *arguments]
    runpy.run_path(str(PROJECT / "manage.py"), run_name="__main__")


def order_of_this_child(orders: socket.socket) -> tuple[list[str], str, dict[str, str], list[int]]:
    """Fork for each order, and tell what became of each child. Returns in the children only."""
    with selectors.DefaultSelector() as selector:
        selector.register(orders, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data:
                    pid, answer = key.data
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    with suppress(BrokenPipeError), answer:
                        answer.send(str(os.waitpid(pid, 0)[1]).encode())
                    continue
                text, descriptors, _, _ = socket.recv_fds(orders, MOST_BYTES, 3)
                if not text:
                    os._exit(0)
                *standard, theirs = descriptors
                pid = os.fork()
                if not pid:
                    return *json.loads(text), standard
                answer = socket.socket(fileno=theirs)
                answer.send(str(pid).encode())
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, answer))
                for descriptor in standard:
                    os.close(descriptor)


if __name__ == "__main__":
    main()
