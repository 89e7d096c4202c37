"""Limits by the value of a label: claims look only at values of which one may be claimed, and miss none."""

import threading

import pytest
from django.db import connections, transaction
from msgspec.structs import replace

from tasks_app.core.operations import Claim, Commit, Operation, Query
from tasks_app.database import dialect_of, limits
from tasks_app.database.limits import LEFT_OVER
from tasks_app.database.transaction import transact
from tasks_app.database.transaction_values import Undecided
from tasks_app.models import LimitedValue, RecentClaim, Task
from tasks_app.writer.housekeeping import OldValues
from taskstore.errors import CommitRefused
from taskstore.types.limits import Rate
from taskstore.types.tasks import Change, NewTask

from .databases import only_postgresql
from .people import ANN, BOB

pytestmark = pytest.mark.django_db(transaction=True)
DAY_MS = 86_400_000


def add(*users, **fields):
    adds = [NewTask(group="mail", labels={"user": user}, **fields) for user in users]
    return Task.objects.commit(owner=ANN, adds=adds)


def claim(limit=1, **asked):
    return Task.objects.claim("mail", owner=BOB, **{"limit": limit, "duration_ms": 60_000} | asked)


def users(tasks):
    return sorted(task.labels["user"] for task in tasks)


def left():
    """The values that the next claim looks at."""
    return sorted(LimitedValue.objects.values_list("value", flat=True))


@pytest.fixture
def held():
    """Two tasks of each of three users, of which one may run, and does."""
    Task.objects.set_limits("mail", running=1, by="user")
    add(*"aabbcc")
    return claim(10)


def test_values_at_their_limit_are_not_looked_at_again(held):
    assert users(held) == ["a", "b", "c"]
    assert claim() == []
    assert left() == []


def test_who_ends_a_lease_makes_its_value_claimable(held):
    assert claim() == []
    Task.objects.commit(owner=BOB, deletes=[held[1].id])
    assert left() == [held[1].labels["user"]]
    [found] = claim(10)
    assert users([found]) == left()
    assert claim() == []
    assert left() == []


def test_a_lease_that_is_renewed_frees_nothing(held):
    assert claim() == []
    Task.objects.commit(owner=BOB, updates=[Change(id=held[0].id, timespec_ms=-60_000)])
    assert left() == []


def test_a_lease_whose_task_changes_its_value_frees_the_former(held):
    assert claim() == []
    Task.objects.commit(owner=BOB, updates=[Change(id=held[0].id, labels={"user": "z"}, timespec_ms=-60_000)])
    assert users(claim(10)) == users([held[0]])


def test_a_task_of_a_new_value_is_found_among_many_at_their_limit(held):
    assert claim() == []
    add("d", "a")
    assert users(claim(10)) == ["d"]


def test_a_scheduled_task_is_found_when_it_is_due(clock):
    Task.objects.set_limits("mail", running=1, by="user")
    add("a", timespec_ms=-5_000)
    assert claim() == []
    clock.advance(5_000)
    assert users(claim()) == ["a"]


def test_a_query_of_the_future_finds_what_is_due_by_then(clock):
    Task.objects.set_limits("mail", running=1, by="user")
    add("a", timespec_ms=-5_000)
    query = Query(groups=("mail",), owner=BOB, duration_ms=60_000, at_ms=clock.now_ms + 4_000)
    assert Task.objects.perform(query) == []
    assert users(map(Task.of, Task.objects.perform(replace(query, at_ms=clock.now_ms + 6_000)))) == ["a"]


def test_what_came_due_together_is_found_one_after_the_other(clock):
    Task.objects.set_limits("mail", running=1, by="user")
    add(*"aabb", timespec_ms=-5_000)
    clock.advance(5_000)
    assert users([*claim(), *claim()]) == ["a", "b"]
    assert claim() == []


def test_a_value_comes_back_when_its_rate_allows(clock):
    Task.objects.set_limits("mail", rate=Rate(1, 10_000), by="user")
    add(*"aab")
    assert users(claim(10)) == ["a", "b"]
    assert claim() == []
    supply = within_limits_of("mail")
    assert supply.available == {"mail": 0}
    assert 9_000 < supply.next_in_ms["mail"] <= 10_020
    clock.advance(9_900)
    assert claim() == []
    clock.advance(200)
    assert users(claim(10)) == ["a"]


def test_a_rate_that_was_used_while_the_clock_was_ahead_comes_back(clock):
    Task.objects.set_limits("mail", rate=Rate(1, 10_000), by="user")
    add(*"aabb")
    clock.advance(DAY_MS)
    assert users(claim(10)) == ["a", "b"]
    assert claim() == []
    clock.advance(-DAY_MS)
    assert claim() == []  # Which notes the claims of then as of now.
    assert RecentClaim.objects.count() == 2
    clock.advance(10_100)
    assert users(claim(10)) == ["a", "b"]


def test_a_task_that_is_added_as_a_claim_looks_is_found_by_the_next(held, monkeypatch):
    assert claim() == []
    lock = limits._lock

    def lock_while_somebody_adds(group, dialect):
        now_ms = yield from lock(group, dialect)
        return now_ms and now_ms - 50

    monkeypatch.setattr(limits, "_lock", lock_while_somebody_adds)
    add("d")  # Available from a time that is later than that of the claim.
    claim()
    monkeypatch.undo()
    assert users([*Task.objects.filter(labels__user="d", leased_since_ms__gt=0), *claim(10)]) == ["d"]


def test_a_task_is_found_though_the_clock_was_set_back_after_it_was_added(clock):
    Task.objects.set_limits("mail", running=1, by="user")
    clock.advance(4_000)
    add("a")
    clock.advance(-4_000)
    assert claim() == []
    assert claim() == []
    clock.advance(4_000)
    assert users(claim()) == ["a"]
    assert claim() == []
    assert left() == []


def test_expired_tasks_whose_rates_allow_nothing_hide_no_others(clock):
    Task.objects.set_limits("mail", rate=Rate(2, 600_000), by="user")
    add(*"aa")
    assert users(claim(10)) == ["a", "a"]
    clock.advance(1_000)
    add("b")
    assert users(claim(10)) == ["b"]
    clock.advance(61_000)
    assert users(claim()) == ["b"]


def test_rows_do_not_pile_up_while_there_is_always_a_task():
    Task.objects.set_limits("mail", running=100, by="user")
    add(*"aaaa")
    for _ in range(20):
        add("a")
        Task.objects.commit(owner=BOB, deletes=[task.id for task in claim()])
    assert len(left()) <= 4


def test_what_nobody_claims_leaves_no_rows_behind():
    Task.objects.set_limits("mail", running=100, by="user")
    for user in "abc":
        Task.objects.commit(owner=0, deletes=[task.id for task in add(user)])
    [waiting] = add("d")
    dialect = dialect_of("default")
    with transaction.atomic():
        dialect.drive(OldValues().forget(dialect))
    assert left() == ["d"]
    assert [task.origin for task in claim(10)] == [waiting.id]


@only_postgresql
@pytest.mark.parametrize("asked", [{"running": 9}, {"rate": Rate(9, 1_000)}, {"running": 9, "by": "user"}])
def test_a_task_that_somebody_has_locked_holds_up_none_of_the_others(asked):
    first, *_ = add(*"aaaa")
    Task.objects.set_limits("mail", **asked)
    locked, ends = threading.Event(), threading.Event()

    def lock():
        with transaction.atomic():
            list(Task.objects.filter(id=first.id).select_for_update())
            locked.set()
            ends.wait(20)
        connections.close_all()

    thread = threading.Thread(target=lock)
    thread.start()
    assert locked.wait(20)
    found = claim(2)
    ends.set()
    thread.join()
    assert len(found) == 2
    assert first.id not in {task.origin for task in found}


def test_an_expired_task_keeps_its_slot_and_is_claimed_again(held, clock):
    assert claim() == []
    clock.advance(61_000)
    assert users(claim(10)) == ["a", "b", "c"]
    assert claim() == []


def test_an_expired_task_whose_rate_allows_nothing_leaves_no_rows_behind(clock):
    Task.objects.set_limits("mail", rate=Rate(1, 600_000), by="user")
    add(*"aa")
    assert users(claim()) == ["a"]
    clock.advance(61_000)
    for user in "bcdef":
        add(user)
        assert users(claim()) == [user]
    assert left().count("a") == 1  # From when the rate allows it.


def test_an_update_that_leases_needs_a_slot_of_its_value():
    one, other, third = add("a", "a", "b")
    Task.objects.set_limits("mail", running=1, by="user")
    Task.objects.commit(owner=BOB, updates=[Change(id=one.id, timespec_ms=-60_000)])
    Task.objects.commit(owner=BOB, updates=[Change(id=third.id, timespec_ms=-60_000)])
    with pytest.raises(CommitRefused):
        Task.objects.commit(owner=BOB, updates=[Change(id=other.id, timespec_ms=-60_000)])


def test_whoever_waits_alone_does_not_pile_up_what_was_looked_at(held):
    assert claim() == []
    for _ in range(LEFT_OVER):
        add("a")
    assert within_limits_of("mail").available == {"mail": 1}  # A claim, which only tidies up.
    assert claim() == []
    assert left() == []
    assert within_limits_of("mail").available == {"mail": 0}


def test_more_rows_than_are_read_at_once_hide_nothing(monkeypatch):
    monkeypatch.setattr("tasks_app.database.limited_values.MOST_VALUES", 3)
    Task.objects.set_limits("mail", running=1, by="user")
    for user in [*"aaaaaaabbbbbbbcdefgh", ""]:
        add(user)
    assert users(task for _ in range(9) for task in claim()) == ["", *"abcdefgh"]
    for _ in range(6):
        assert claim() == []
    assert left() == []


def test_another_limit_looks_at_all_values_anew(held):
    assert claim() == []
    Task.objects.set_limits("mail", running=2, by="user")
    assert users(claim(10)) == ["a", "b", "c"]
    Task.objects.remove_limits("mail")
    dialect_of("default").drive(OldValues().forget(dialect_of("default")))
    assert not LimitedValue.objects.exists()


@pytest.mark.parametrize(("user", "found"), [("a", []), ("d", Undecided.CONTENDED)])
def test_a_claim_beside_an_add_is_put_off_only_if_the_limit_allows_the_new_task(held, user, found):
    assert claim() == []
    operations: list[Operation] = [
        Commit(owner=ANN, adds=(NewTask(group="mail", labels={"user": user}),)),
        Claim(groups=("mail",), owner=BOB, duration_ms=60_000),
    ]
    dialect = dialect_of("default")
    with transaction.atomic():
        assert dialect.drive(transact(operations, dialect)).decisions[1] == found
    assert users(claim(10)) == (["d"] if user == "d" else [])


@only_postgresql
def test_who_adds_waits_for_nobody_who_adds_the_same_value(held):
    assert claim() == []
    done = threading.Event()

    def elsewhere():
        try:
            add("d")
            done.set()
        finally:
            connections.close_all()

    with transaction.atomic():
        add("d")
        thread = threading.Thread(target=elsewhere)
        thread.start()
        assert done.wait(5)
        thread.join()
    assert users(claim(10)) == ["d"]


def within_limits_of(group):
    dialect = dialect_of("default")
    with transaction.atomic():
        return dialect.drive(dialect.supply_of([group], [], []))
