"""The engine of workers, when what it counts on changes meanwhile."""

import threading
from functools import partial

import pytest

from taskstore.types.tasks import Order
from taskstore.worker.engine import Engine

from .fakes import FakeStore

pytestmark = pytest.mark.once

PATIENCE_S = 30


class Nobody:
    """An executor that has as much room as it is told to have, the last for ever."""

    at_once = 1
    end_s = 0.0
    chores = ()

    def __init__(self, *rooms):
        self._rooms = list(rooms)
        self.claimed = threading.Event()

    def start(self, engine): ...

    def is_idle(self):
        return True

    def room(self, in_work):
        return self._rooms.pop(0) if len(self._rooms) > 1 else self._rooms[0]

    def take(self, tasks):
        self.claimed.set()

    def stop(self): ...

    def interrupt(self): ...

    def end(self): ...

    def info(self):
        return {}


def engine_of(executor):
    return Engine(
        FakeStore(), executor, ["mail"], name="ann", lease_ms=30_000, order=Order.RANDOM, wait_ms=100, grace_s=0
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
    engine = engine_of(Nobody(1))
    begun: list[int] = []
    engine.fail(ValueError())
    assert not engine.begin(1, "work", partial(begun.append, 1))
    assert not begun
