"""What continues bulk operations in a server process."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from django.db import connections

from tasks_app import bulk
from tasks_app.bulk import running
from tasks_app.core.actors import Actor
from tasks_app.models import BulkOperation, Task
from taskstore.types.tasks import NewTask

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture(autouse=True)
def only_the_runner_works(monkeypatch):
    monkeypatch.setattr(bulk.starting, "AT_ONCE_S", -1)
    monkeypatch.setattr(running, "MOST", 2)
    monkeypatch.setattr(running, "LOOK_EVERY_S", 0.01)


def purge(group: str, count: int = 10) -> BulkOperation:
    Task.objects.commit(owner=1, adds=[NewTask(group=group)] * count)
    seen = bulk.preview(bulk.Selection(group=group))
    asked = bulk.Asked(action=bulk.Purge(), selection=seen.selection, expected=count, typed=group)
    return bulk.start(asked, Actor("olaf"))


def state_of(operation: BulkOperation) -> str:
    try:
        return BulkOperation.objects.get(pk=operation.pk).state
    finally:
        if threading.current_thread() is not threading.main_thread():
            connections.close_all()


def run_until_done(operation: BulkOperation, *, until: Callable[[], object] = lambda: True) -> None:
    async def story() -> None:
        runner = bulk.Runner()
        async with asyncio.timeout(20):
            while await asyncio.to_thread(state_of, operation) != BulkOperation.State.DONE or not until():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            runner.end()
            await runner.ended()

    asyncio.run(story())


def test_it_ends_what_was_begun():
    operation = purge("mail")
    assert state_of(operation) == BulkOperation.State.RUNNING
    run_until_done(operation)
    assert Task.objects.get_queryset().count() == 0


def test_it_survives_an_unexpected_error_and_logs_it(monkeypatch, caplog):
    operation = purge("mail")
    now_ms, troubles = Task.objects.now_ms, iter([ZeroDivisionError("of all things")])

    def troubled() -> int:
        if trouble := next(troubles, None):
            raise trouble
        return now_ms()

    monkeypatch.setattr(Task.objects, "now_ms", troubled)
    run_until_done(operation)
    [record] = caplog.records
    assert (record.levelname, record.getMessage()) == ("ERROR", "bulk operations: trying again: of all things")


def test_an_operation_that_fails_does_not_hold_up_the_others(monkeypatch, caplog):
    broken, whole = purge("mail"), purge("reports")
    do_chunk = running._do_chunk

    def troubled(operation, pace):
        if operation.pk == broken.pk:
            raise ZeroDivisionError("of all things")
        return do_chunk(operation, pace)

    monkeypatch.setattr(running, "_do_chunk", troubled)
    run_until_done(whole, until=lambda: caplog.messages)
    assert state_of(broken) == BulkOperation.State.RUNNING
    assert set(caplog.messages) == {"bulk operations: trying again: of all things"}


def test_it_ends_amid_an_operation_after_the_chunk_and_lets_go_of_it(monkeypatch):
    operation = purge("mail")
    done = operation.done
    begun, may_go = threading.Event(), threading.Event()
    do_chunk = running._do_chunk

    def held_up(operation, pace):
        begun.set()
        assert may_go.wait(20)
        return do_chunk(operation, pace)

    monkeypatch.setattr(running, "_do_chunk", held_up)

    async def story() -> None:
        runner = bulk.Runner()
        async with asyncio.timeout(20):
            assert await asyncio.to_thread(begun.wait, 20)
            runner.end()
            may_go.set()
            await runner.ended()

    asyncio.run(story())
    left = BulkOperation.objects.get(pk=operation.pk)
    assert (left.state, left.done, left.held_by) == (BulkOperation.State.RUNNING, done + 2, "")
    monkeypatch.setattr(running, "_do_chunk", do_chunk)
    run_until_done(operation)
