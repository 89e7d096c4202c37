"""One other process, for what would hold this one's interpreter: to decode a large body takes seconds.

A thread is no help against that: the decoders keep the interpreter's lock. The process starts with the first large
body, as a new interpreter and not as a fork, which would copy locks and connections. It does one thing at a time, is
replaced when it dies, and ends when it has had nothing to do for a while, which gives its memory back, or with the
server: its end of the pipe tells it, however the server ended.
"""

from __future__ import annotations

import atexit
import logging
import os
import pickle
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, TypeVar, cast

from django.conf import settings
from django.core.signals import setting_changed

from taskstore.errors import StoreBusy, TaskStoreError

from .memory import give_back

T = TypeVar("T")

log = logging.getLogger(__name__)

LENGTH = struct.Struct("<Q")
END = LENGTH.pack(2**64 - 1)
TRIES = 2
IDLE_S = 3.0
# What decides how a body is judged: the server's settings may have been changed since the process started.
SETTINGS = (
    "TASKSTORE_MAX_DATA_BYTES",
    "TASKSTORE_MAX_CHANGES",
    "TASKSTORE_MAX_LABELS",
    "TASKSTORE_MAX_CLAIM_GROUPS",
    "TASKSTORE_MAX_VALUES",
)


class Helper:
    """The process, and whoever waits for it. From any thread but that of an event loop."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._runs = 0  # How many there have been: whoever ends the process sees whether another one came meanwhile.

    def run(self, work: Callable[..., Iterable[T]], *args: Any) -> list[T]:
        """What the function of a module yields there. Each part is handed over by itself.

        Raises the TaskStoreError that it raises, StoreBusy when the process dies of it twice.
        """
        order = pickle.dumps((work, {name: getattr(settings, name) for name in SETTINGS if hasattr(settings, name)}))
        arguments = [pickle.dumps(arg) if not isinstance(arg, bytes) else arg for arg in args]
        kinds = bytes(isinstance(arg, bytes) for arg in args)
        with self._turn:
            self._runs += 1
            if self._runs == 1:
                self._look_later(0)
            for _ in range(TRIES):
                try:
                    *parts, is_done = self._asked([order, kinds, *arguments])
                except (EOFError, OSError):
                    self._forget()
                except BaseException:
                    self._forget()  # The rest of the answer would be taken for the next one.
                    raise
                else:
                    if is_done:
                        return parts
                    raise parts[-1]
        log.error("the process that decodes large requests died twice on the same request")
        raise StoreBusy("the server could not decode a request as large as this: try again later, or send less at once")

    def end(self) -> None:
        """End the process, if there is one. A later `run` would start another."""
        with self._turn:
            self._forget()

    def _look_later(self, seen: int) -> None:
        """Look after IDLE_S, and again for as long as there is work, whether the process is still needed."""
        timer = threading.Timer(IDLE_S, self._look, (seen,))
        timer.daemon = True  # The server does not wait for it.
        timer.start()

    def _look(self, seen: int) -> None:
        with self._turn:
            if self._runs != seen:
                self._look_later(self._runs)
                return
            self._runs = 0
            self._forget()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def _asked(self, frames: Iterable[bytes]) -> list[Any]:
        process = self._process = self._process or _started()
        orders, answers = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
        for frame in frames:
            _write(orders, frame)
        orders.write(END)
        orders.flush()
        # From our own process, which nobody else can write to.
        return [pickle.loads(frame) for frame in _frames(answers)]  # noqa: S301

    def _forget(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _started() -> subprocess.Popen[bytes]:
    # How Django is set up is in the environment already.
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables
    )


def _write(pipe: BinaryIO, frame: bytes) -> None:
    pipe.write(LENGTH.pack(len(frame)))
    pipe.write(frame)


def _frames(pipe: BinaryIO) -> Iterator[bytes]:
    """Those until the end of a message. Raises EOFError when the other process has gone."""
    while (length := _exactly(pipe, LENGTH.size)) != END:
        yield _exactly(pipe, LENGTH.unpack(length)[0])


def _exactly(pipe: BinaryIO, size: int) -> bytes:
    read: bytes = pipe.read(size)
    if len(read) < size:
        raise EOFError
    return read


def main() -> None:
    """The process: do what it is told until the pipe is closed."""
    import signal

    import django

    # Ctrl-C is for the server, which is waited for.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Nothing that is printed gets among the answers.
    django.setup()
    try:
        while True:
            _answer(orders, answers)
            give_back()
    except (EOFError, BrokenPipeError):
        os._exit(0)  # The server has gone: nothing is left to be told.


def _answer(orders: BinaryIO, answers: BinaryIO) -> None:
    order, kinds, *arguments = _frames(orders)
    work, chosen = pickle.loads(order)  # noqa: S301
    for name, value in chosen.items():
        if getattr(settings, name, None) != value:
            setattr(settings, name, value)
            setting_changed.send(sender=settings, setting=name, value=value, enter=True)
    args = [arg if is_bytes else pickle.loads(arg) for is_bytes, arg in zip(kinds, arguments, strict=True)]  # noqa: S301
    del arguments
    try:
        for part in work(*args):
            _write(answers, pickle.dumps(part, pickle.HIGHEST_PROTOCOL))
        is_done = True
    except TaskStoreError as error:
        _write(answers, pickle.dumps(error))
        is_done = False
    except Exception:
        _write(answers, pickle.dumps(RuntimeError(f"in the helper process: {traceback.format_exc()}")))
        is_done = False
    _write(answers, pickle.dumps(is_done))
    answers.write(END)
    answers.flush()


helper = Helper()
atexit.register(helper.end)

if __name__ == "__main__":
    # Under its own name, by which what is handed over knows it.
    from tasks_app.offload.helper_process import main as run

    run()
