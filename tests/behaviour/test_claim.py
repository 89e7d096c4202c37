"""What a claim takes, and what it leaves."""

from collections import Counter
from dataclasses import replace

import pytest

from tasks_app.core.operations import GroupScope
from tasks_app.models import Task
from taskstore.errors import CommitRefused, InvalidInput
from taskstore.types.tasks import NewTask, Order, Refusal, State

from .people import ANN, BOB
from .values import with_each


def add(store, *tasks):
    return store.commit(owner=ANN, adds=tasks)


def test_a_claim_keeps_everything_but_id_owner_time_and_claims(store, clock):
    labels = {"to": "Bob"}
    [old] = add(
        store,
        NewTask(group="mail", data=b"1\0\xff", data_type="example/Letter", error="torn", labels=labels, priority=3),
    )
    clock.advance(10_000)
    [new] = store.claim("mail", owner=BOB, duration_ms=30_000)
    assert new == replace(old, id=new.id, owner=BOB, available_at_ms=clock.now_ms + 30_000, claims=1)


def test_nothing_is_claimed_before_its_time(store, clock):
    add(store, NewTask(group="mail", timespec_ms=-1_000))
    clock.advance(999)
    assert store.claim("mail", owner=ANN) == []
    clock.advance(1)
    assert len(store.claim("mail", owner=BOB)) == 1


def test_nobody_claims_what_is_leased_until_the_lease_ends(store, clock):
    add(store, NewTask(group="mail"))
    [held] = store.claim("mail", owner=ANN, duration_ms=1_000)
    assert store.claim("mail", owner=BOB) == store.claim("mail", owner=ANN) == []
    clock.advance(1_000)
    [taken] = store.claim("mail", owner=BOB)
    assert (taken.origin, taken.claims) == (held.origin, 2)


def test_random_is_the_rule_and_chooses_evenly(store):
    first = add(store, *[NewTask(group="mail")] * 4)[0].id
    chosen = Counter[int]()
    for _ in range(200):
        [task] = store.claim("mail", owner=BOB, duration_ms=0, order=Order.RANDOM)
        chosen[task.origin - first] += 1
    # Each has 50 on average, and is six standard deviations away from these bounds.
    assert all(13 < times < 87 for times in chosen.values()), chosen
    assert len(chosen) == 4


def test_a_thousand_can_be_claimed_at_once(store):
    added = add(store, *[NewTask(group="mail")] * 1_200)
    claimed = store.claim("mail", owner=BOB, limit=1_000)
    assert len({task.origin for task in claimed}) == 1_000
    assert len(store.claim("mail", owner=BOB, limit=1_000)) == len(added) - 1_000


def test_missing_depends_are_an_error(store):
    [gone] = add(store, NewTask(group="mail"))
    store.commit(owner=ANN, deletes=[gone.id])
    [task] = add(store, NewTask(group="mail"))
    with pytest.raises(CommitRefused) as error:
        store.claim("mail", owner=BOB, depends=[gone.id, 0, task.id])
    assert error.value.refusal == Refusal(depends=(gone.id, 0))
    assert store.find([task.id]) == [task]


@with_each(
    "group, asked, field",
    [
        ("", {}, "group"),
        ("a\0", {}, "group"),
        ("x" * 256, {}, "group"),
        ("mail", {"limit": 0}, "limit"),
        ("mail", {"limit": -1}, "limit"),
        ("mail", {"limit": 1_001}, "limit"),
        ("mail", {"duration_ms": 2**62}, "duration"),
        ("mail", {"depends": [1, 2**63]}, "depends[1]"),
        ("mail", {"owner": -(2**63) - 1}, "clientid"),
    ],
)
def test_bad_input_is_named_and_claims_nothing(store, group, asked, field):
    [task] = add(store, NewTask(group="mail"))
    with pytest.raises(InvalidInput) as error:
        store.claim(group, **{"owner": ANN, **asked})
    assert list(error.value.fields) == [field]
    assert store.find([task.id]) == [task]


# ---- The states follow from the row and the time, in words and in queries alike


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
