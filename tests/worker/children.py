"""Processes for the tests of them: of shells, and of Python functions that are named by their path."""

import json
import os
import pickle
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from taskstore.jobs.process import Assignment, prepare
from taskstore.jobs.registry import REGISTERED
from taskstore.worker.children import Children, Event, Gone, Over, Shell, Work

SAMPLE = "tests.jobs.sample"
PATIENCE_S = 30


class Runs:
    """Runs work in processes, and keeps what was heard of it."""

    def __init__(self, children: Children) -> None:
        self.children = children
        self.child = children.new()
        self._heard: list[Event] = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.children.end()

    def begin(self, work) -> int:
        return self.child.run(*work)

    def hear(self, kind=Over) -> Any:
        """The next event of this kind."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            while self._heard:
                event = self._heard.pop(0)
                if isinstance(event, kind):
                    return event
                assert not isinstance(event, Gone | Over), event
            self._heard += self.child.wait(PATIENCE_S)
        raise AssertionError(f"no {kind.__name__} was heard")

    def over(self, work):
        self.begin(work)
        return self.hear()


class Shells(Runs):
    def __init__(self, folder, **env) -> None:
        super().__init__(Children(cwd=str(folder)))
        self._env = {**os.environ, **env}

    def work(self, line, *, program="/bin/sh", **limits):
        limits = {"linger_s": 0.5, "head_bytes": 1_000, "tail_bytes": 1_000, **limits}
        return [Work(Shell(program, line, self._env), **limits)]

    def run(self, line, **limits):
        return self.over(self.work(line, **limits))


class Functions(Runs):
    def __init__(self, *modules, jobs=1, **how) -> None:
        children = Children(partial(prepare, [REGISTERED, *(modules or [SAMPLE])], jobs), **how)
        children.start()
        super().__init__(children)

    def work(self, function, *args, kill_after_s=0.3, limit_s=None, memory_bytes=None, **more):
        assigned = Assignment(function=f"{SAMPLE}.{function}", args=args, has_limit=limit_s is not None, **more)
        limits = Work(limit_s=limit_s, memory_bytes=memory_bytes, kill_after_s=kill_after_s)
        return [limits, pickle.dumps(assigned)]

    def run(self, function, *args, **more):
        return self.over(self.work(function, *args, **more))

    def answer(self, function, *args, **more):
        return answer_of(self.run(function, *args, **more))


def answer_of(over: Over):
    return json.loads(over.answer)


def is_alive(pid) -> bool:
    return state_of(pid) not in ("", "Z")


def state_of(pid) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def within(seconds, work) -> Any:
    """Do it in a thread that nobody waits for if it hangs."""
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it hangs"
    return done[0]
