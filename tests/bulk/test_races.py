"""Two people at the same operation at the same moment."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from django.db import connections

from tasks_app import bulk
from tasks_app.bulk import Purge, starting
from tasks_app.core.actors import Actor
from tasks_app.models import BulkOperation
from taskstore.errors import InvalidInput

from ..console.store import add
from .test_operations import begin, tasks_of


@pytest.mark.usefixtures("transactional_db")
def test_of_two_undos_at_the_same_moment_one_is_refused(monkeypatch):
    add(count=3)
    operation = begin(Purge, typed="mail")
    both_have_looked, look = threading.Barrier(2), starting.why_not_undoable

    def looked(operation):
        found = look(operation)
        # The second one can't come so far before the first one is through, which waits in vain.
        with suppress(threading.BrokenBarrierError):
            both_have_looked.wait(0.5)
        return found

    def undo(by):
        try:
            return bulk.undo(operation, Actor(by)).state
        except InvalidInput as refused:
            return str(refused)
        finally:
            connections.close_all()

    monkeypatch.setattr(starting, "why_not_undoable", looked)
    with ThreadPoolExecutor(2) as pool:
        results = sorted(pool.map(undo, ("olaf", "ada")))
    assert results == ["done", "operation: it was already undone"]
    assert BulkOperation.objects.filter(verb="undo").count() == 1
    assert len(tasks_of()) == 3
