"""The states follow from the row and the time, in words and in queries alike."""

import pytest

from tasks_app.core.operations import GroupScope
from tasks_app.models import Task
from taskstore.types.tasks import Change, NewTask, State

from .people import ANN, BOB


@pytest.fixture
def task(clock):
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    return task


def state(task, clock):
    """The task's state, which its queryset tells too."""
    now_ms = clock.now_ms
    found = [each for each in State if Task.objects.get_queryset().in_state(each, now_ms).filter(id=task.id).exists()]
    assert [each for each in found if each is not State.FAILED] == [task.state(now_ms)]
    assert (State.FAILED in found) == task.is_failed
    return task.state(now_ms)


def test_a_task_is_ready_when_its_time_has_come(task, clock):
    assert state(task, clock) is State.READY


def test_a_task_with_a_future_time_is_scheduled_until_then(clock):
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", timespec_ms=-1_000)])
    assert state(task, clock) is State.SCHEDULED
    clock.advance(999)
    assert state(task, clock) is State.SCHEDULED
    clock.advance(1)
    assert state(task, clock) is State.READY


def test_a_claimed_task_expires_when_its_lease_ends(task, clock):
    [held] = Task.objects.claim("mail", owner=BOB, duration_ms=1_000)
    assert state(held, clock) is State.CLAIMED
    clock.advance(999)
    assert state(held, clock) is State.CLAIMED
    clock.advance(1)
    assert state(held, clock) is State.EXPIRED
    [again] = Task.objects.claim("mail", owner=ANN)
    assert state(again, clock) is State.CLAIMED


def test_a_claim_for_no_time_has_expired_at_once(task, clock):
    [held] = Task.objects.claim("mail", owner=BOB, duration_ms=0)
    assert state(held, clock) is State.EXPIRED


def test_an_update_with_a_future_time_leases(task, clock):
    [held] = Task.objects.commit(owner=BOB, updates=[Change(id=task.id, timespec_ms=-1_000)])
    assert state(held, clock) is State.CLAIMED
    clock.advance(1_000)
    assert state(held, clock) is State.EXPIRED


def test_an_update_without_a_future_time_makes_it_ready(task, clock):
    [held] = Task.objects.claim("mail", owner=BOB)
    [changed] = Task.objects.commit(owner=BOB, updates=[Change(id=held.id)])
    assert state(changed, clock) is State.READY


def test_a_task_given_back_is_ready_or_scheduled(task, clock):
    [held] = Task.objects.claim("mail", owner=BOB)
    [later] = Task.objects.commit(owner=BOB, updates=[Change(id=held.id, release=True, timespec_ms=-1_000)])
    assert state(later, clock) is State.SCHEDULED
    clock.advance(1_000)
    assert state(later, clock) is State.READY


def test_a_moved_task_with_a_future_time_is_scheduled(task, clock):
    [held] = Task.objects.claim("mail", owner=BOB)
    [moved] = Task.objects.commit(
        owner=BOB, adds=[NewTask(group="reports", id=held.id, timespec_ms=-1_000)], deletes=[held.id]
    )
    assert state(moved, clock) is State.SCHEDULED


def test_a_failed_task_is_that_beside_its_state(clock):
    [failed] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", error="torn")])
    assert state(failed, clock) is State.READY
    assert failed.is_failed


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (None, ["PAY/x", "pay", "pay/", "pay/x", "pay/\U0010ffffx", "payroll"]),
        ((), []),
        (("pay",), ["pay"]),
        (("pay/*",), ["pay/", "pay/x", "pay/\U0010ffffx"]),
        (("pay*",), ["pay", "pay/", "pay/x", "pay/\U0010ffffx", "payroll"]),
        (("PAY/*", "pay"), ["PAY/x", "pay"]),
        (("*",), ["PAY/x", "pay", "pay/", "pay/x", "pay/\U0010ffffx", "payroll"]),
    ],
)
def test_a_query_within_a_scope_finds_what_the_scope_allows(transactional_db, patterns, expected):
    names = ["payroll", "pay/x", "pay/", "PAY/x", "pay", "pay/\U0010ffffx"]
    Task.objects.commit(owner=ANN, adds=[NewTask(group=name) for name in names])
    scope = GroupScope(patterns)
    found = [task.group for task in Task.objects.get_queryset().within(scope).order_by("group")]
    assert found == expected == [name for name in sorted(names) if scope.allows(name)]
