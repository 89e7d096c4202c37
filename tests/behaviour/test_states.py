"""The states follow from the row and the time, in words and in queries alike."""

import pytest

from tasks_app.core.operations import GroupScope
from tasks_app.models import Task
from taskstore.types.tasks import NewTask, State

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


def test_a_claimed_task_expires_when_its_lease_ends(task, clock):
    [held] = Task.objects.claim("mail", owner=BOB, duration_ms=1_000)
    assert state(held, clock) is State.CLAIMED
    clock.advance(999)
    assert state(held, clock) is State.CLAIMED
    clock.advance(1)
    assert state(held, clock) is State.EXPIRED
    [again] = Task.objects.claim("mail", owner=ANN)
    assert state(again, clock) is State.CLAIMED


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
