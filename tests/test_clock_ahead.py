"""What was written while the database's clock was ahead holds nobody up once the clock is right again."""

import pytest

from tasks_app.access import tokens
from tasks_app.bulk import running
from tasks_app.control import progress
from tasks_app.control.progress import progress_of
from tasks_app.models import BulkOperation, Client, Task
from tasks_app.reading import clients
from taskstore.errors import Forbidden
from taskstore.types.tasks import NewTask
from tests.behaviour.conftest import Clock

DAY_MS = 86_400_000


@pytest.fixture
def clock(db, monkeypatch) -> Clock:
    return Clock(Task.objects.now_ms(), monkeypatch)


def hear(client_id: int, token=None) -> None:
    clients.hear(Client(id=client_id, name="kim", groups=[], info="{}", token=token and token.pk))


def test_a_client_that_spoke_then_is_not_taken_for_one_that_lives(clock):
    ann, bob = (tokens.create(name, "work")[0] for name in ("ann", "bob"))
    clock.advance(DAY_MS // 2)
    hear(7, ann)
    hear(8, ann)
    clock.advance(-DAY_MS // 2)
    assert clients.seen() == []
    hear(7, bob)
    with pytest.raises(Forbidden, match="another token"):
        hear(7, ann)
    assert [each.id for each in Client.objects.all()] == [7]


def test_an_operation_that_a_process_held_then_goes_on(clock):
    operation = BulkOperation.objects.create(verb="purge", expected=1, began_at_ms=0)
    first, second = running.Hold(operation.pk), running.Hold(operation.pk)
    clock.advance(DAY_MS)
    assert first.take()
    assert not second.take()
    clock.advance(-DAY_MS)
    assert second.take()
    assert not first.take()


def test_a_report_of_progress_is_newer_than_one_of_then(clock):
    Task.objects.commit(owner=1, adds=[NewTask(group="mail")])
    clock.advance(DAY_MS)
    [task] = Task.objects.claim("mail", owner=1, duration_ms=2 * DAY_MS)
    progress.report(task.id, owner=1, done=0.3)
    clock.advance(-DAY_MS)
    progress.report(task.id, owner=1, done=0.5)
    clock.advance(-1_000)  # As one of another process that is written a moment late.
    progress.report(task.id, owner=1, done=0.4)
    assert progress_of([task])[task.origin].done == 0.5
