"""Worker processes, forked from one that has imported everything and opened nothing."""

from __future__ import annotations

import gc
import multiprocessing
import time
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any, Self

from .. import CannotMeasure
from .client import Client
from .sample import Sample, Window

FORK = multiprocessing.get_context("fork")
START_AFTER_S = 0.02  # For the last worker to hear of it.


def alone(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do the work in a process of its own, so that it leaves nothing open here, and return what it returns."""
    worker = Worker(lambda _: work(*arguments))
    try:
        return worker.result()
    finally:
        worker.end()


class Crew:
    """The workers of a client: first all of them connect, then all of them work."""

    def __init__(self, client: Client) -> None:
        # What is there already is no garbage: looking through it would copy it into every worker.
        gc.freeze()
        self._workers = [Worker(partial(client.work, number)) for number in range(client.processes)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()

    def wait_until_connected(self) -> None:
        for worker in self._workers:
            worker.wait_until_connected()

    def start(self, lead_s: float, seconds: float) -> Window:
        """Let them work for so long before it counts, and then for so long."""
        begins_s = time.monotonic() + START_AFTER_S + lead_s
        window = Window(begins_s=begins_s, ends_s=begins_s + seconds)
        for worker in self._workers:
            worker.start(window)
        return window

    def samples(self) -> list[Sample]:
        return [worker.result() for worker in self._workers]


class Worker:
    """A process that says when it is connected, is told when to work, and sends back what it found."""

    def __init__(self, work: Callable[[Callable[[], Window]], Any]) -> None:
        self._here, there = FORK.Pipe()
        self._process: ForkProcess = FORK.Process(target=_run, args=(work, there))
        self._process.start()
        there.close()

    def wait_until_connected(self) -> None:
        self._receive()

    def start(self, window: Window) -> None:
        self._here.send(window)

    def result(self) -> Any:
        found = self._receive()
        self._process.join()
        return found

    def end(self) -> None:
        """It has no use any more, whatever it does."""
        self._process.kill()
        self._process.join()

    def _receive(self) -> Any:
        try:
            found = self._here.recv()
        except EOFError:
            self._process.join()
            raise CannotMeasure(f"a client ended with exit code {self._process.exitcode}") from None
        if isinstance(found, CannotMeasure):
            raise found
        return found


def _run(work: Callable[[Callable[[], Window]], Any], pipe: Connection) -> None:
    def wait_for_start() -> Window:
        pipe.send(None)
        window: Window = pipe.recv()
        return window

    try:
        pipe.send(work(wait_for_start))
    except Exception as problem:
        traceback.print_exc()
        pipe.send(CannotMeasure(f"a client failed: {type(problem).__name__}: {problem}"))
