"""One other process, for what would hold this one's interpreter: to decode a large body takes seconds.

A thread is no help against that: the decoders keep the interpreter's lock. The process starts with the first large
body. It does one thing at a time, is replaced when it dies, and ends when it has had nothing to do for a while, which
gives its memory back, or with the server.
"""

from __future__ import annotations

import atexit
import logging
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from django.conf import settings
from django.core.signals import setting_changed

from taskstore.errors import StoreBusy, TaskStoreError
from taskstore.worker.children import Child, Children, Desk, Gone, NotPrepared, Over, Serve, Work

from .memory import give_back

T = TypeVar("T")

log = logging.getLogger(__name__)

BODY = "tasks_app.body"  # In place of an argument that is sent by itself.
TRIES = 2
IDLE_S = 3.0
MOST_S, GRACE_S = 30.0, 5.0  # Its parent ends it after the first time, unless somebody has stopped that one, too.
# What decides how a body is judged: the server's settings may have been changed since the process started.
SETTINGS = (
    "TASKSTORE_MAX_DATA_BYTES",
    "TASKSTORE_MAX_CHANGES",
    "TASKSTORE_MAX_LABELS",
    "TASKSTORE_MAX_CLAIM_GROUPS",
    "TASKSTORE_MAX_VALUES",
    "TASKSTORE_MAX_PLAN_BYTES",
)


class Helper:
    """The process, and whoever waits for it. From any thread but that of an event loop."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._children: Children | None = None
        self._child: Child | None = None
        self.pid: int | None = None  # Of the process that answered last.
        self._runs = 0  # How many there have been: whoever ends the process sees whether another one came meanwhile.

    def run(self, work: Callable[..., Iterable[T]], *args: Any) -> list[T]:
        """What the function of a module yields there. Each part is handed over by itself.

        Raises the TaskStoreError that it raises, StoreBusy when the process dies of it twice.
        """
        chosen = {name: getattr(settings, name) for name in SETTINGS if hasattr(settings, name)}
        # Bodies are sent as they are, because a pickle would be one more copy.
        bodies = [arg for arg in args if isinstance(arg, bytes)]
        order = pickle.dumps((work, chosen, [BODY if isinstance(arg, bytes) else arg for arg in args]))
        with self._turn:
            self._runs += 1
            if self._runs == 1:
                self._look_later(0)
            for _ in range(TRIES):
                try:
                    parts = self._parts(order, *bodies)
                except BaseException:
                    self._forget()  # The rest of the answer would be taken for the next one.
                    raise
                if parts and isinstance(parts[-1], Exception):
                    raise parts[-1]
                if parts is not None:
                    return parts
                self._forget()
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

    def _parts(self, *messages: bytes) -> list[Any] | None:
        """Return what the work yields, and the exception that it raises. None: the process died of it."""
        if self._children is None:
            self._children = Children(prepare, captures=False)
        try:
            child = self._child = self._child or self._children.new()
        except NotPrepared as problem:
            log.error("the process that decodes large requests can't start: %s", problem)
            return None
        child.run(Work(limit_s=MOST_S), *messages)
        parts: list[Any] = []
        until_s = time.monotonic() + MOST_S + GRACE_S
        while time.monotonic() < until_s:
            for event in child.wait(GRACE_S):
                if isinstance(event, Gone):
                    return None
                # From our own process, which nobody else can write to.
                if isinstance(event, Over):
                    self.pid = event.pid
                    return [*parts, *pickle.loads(event.answer)] if event.answer else None  # noqa: S301
                if isinstance(event, bytes):
                    parts.append(pickle.loads(event))  # noqa: S301
        return None

    def _forget(self) -> None:
        children, self._children, self._child, self.pid = self._children, None, None, None
        if children is not None:
            children.end()


def prepare() -> tuple[Serve, None]:
    """Set up the process, as the environment says."""
    import django

    django.setup()
    return serve, None


def serve(desk: Desk) -> None:
    """Do what the server asks for. Each part of an answer is sent by itself."""
    while order := desk.next():
        work, chosen, others = pickle.loads(order)  # noqa: S301 - of the server.
        args = [(desk.next() or b"") if arg == BODY else arg for arg in others]
        for name, value in chosen.items():
            if getattr(settings, name, None) != value:
                setattr(settings, name, value)
                setting_changed.send(sender=settings, setting=name, value=value, enter=True)
        ended: list[Exception] = []
        try:
            for part in work(*args):
                desk.say(pickle.dumps(part, pickle.HIGHEST_PROTOCOL))
        except TaskStoreError as error:
            ended = [error]
        except Exception:
            ended = [RuntimeError(f"in the helper process: {traceback.format_exc()}")]
        del work, args
        desk.answer(pickle.dumps(ended))
        give_back()


helper = Helper()
atexit.register(helper.end)
