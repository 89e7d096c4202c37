"""The engine of workers, when what it counts on changes meanwhile."""

import threading
import time

import pytest

from taskstore import Task
from taskstore.types.tasks import Order
from taskstore.worker.engine import Attempt, Engine

from .fakes import FakeStore

pytestmark = pytest.mark.once

PATIENCE_S = 30


class Nobody:
    """An executor that has as much room as it is told to have, the last for ever."""

    at_once = 1
    end_s = 0.0
    given_back = "given back"

    def __init__(self, *rooms):
        self._rooms = list(rooms)
        self.claimed = threading.Event()
        self.ended = []

    def start(self, engine):
        return ()

    def place(self):
        return lambda attempt: self.given_back

    def begin(self, attempts):
        return attempts

    def room(self, in_work):
        return self._rooms.pop(0) if len(self._rooms) > 1 else self._rooms[0]

    def attempts(self, tasks):
        self.claimed.set()
        return [Attempt(task=task) for task in tasks]

    def entry(self, attempt, outcome):
        self.ended.append(outcome)

    def end(self): ...

    def info(self):
        return {}


class OneTask(FakeStore):
    """It gives out a task with each claim."""

    def claim(self, *args, **kwargs):
        super().claim(*args, **kwargs)
        return [Task.make(id=7, group="mail")]


def engine_of(executor):
    return Engine(
        OneTask(), executor, ["mail"], name="ann", lease_ms=30_000, order=Order.RANDOM, wait_ms=100, grace_s=0
    )


def test_it_goes_on_claiming_when_the_room_that_there_was_has_gone():
    """Room for jobs ahead goes when one of them was slow: by the thread that listens, while another one claims."""
    executor = Nobody(1, 0, 1)
    engine = engine_of(executor)
    thread = threading.Thread(target=engine.run)
    thread.start()
    try:
        assert executor.claimed.wait(PATIENCE_S)
    finally:
        engine.stop()
        thread.join(PATIENCE_S)


def test_nothing_is_begun_after_a_failure():
    """Else it would wait for the end of what nobody runs."""
    executor = Nobody(1)
    engine = engine_of(executor)
    engine.settling.start()
    engine.fail(ValueError())
    engine._claim(1, 0)
    assert engine.settling.end(time.monotonic() + PATIENCE_S)
    assert (executor.ended, engine.works) == (["given back"], set())


def test_the_first_outcome_of_an_attempt_counts():
    executor = Nobody(1)
    engine = engine_of(executor)
    engine.settling.start()
    attempt = Attempt(task=Task.make(id=7, group="mail"))
    engine.works.add(attempt)
    for outcome in ("done", "given back"):
        engine.finish([(attempt, outcome)])
    assert engine.settling.end(time.monotonic() + PATIENCE_S)
    assert executor.ended == ["done"]


def test_nothing_is_claimed_while_much_is_to_be_written():
    executor = Nobody(1)
    engine = engine_of(executor)
    engine.settling.put([(lambda: None, 40 * 2**20)])
    assert engine._room() == 0
    engine.settling.start()
    assert engine.settling.end(time.monotonic() + PATIENCE_S)
    assert engine._room() == 1
