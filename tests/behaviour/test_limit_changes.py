"""A change of limits on a large group: in steps, which nobody waits for long, and exact from the first one on."""

import random
import threading
import time
from contextlib import contextmanager

import pytest
from django.db import connections, transaction
from msgspec.structs import replace

from tasks_app.control.limits import BEING_CHANGED, uses_of
from tasks_app.core.operations import Claim, Commit, Query
from tasks_app.database import PATIENCE_S, dialect_of, limit_changes
from tasks_app.database.limit_changes import finish_changes
from tasks_app.database.transaction import transact
from tasks_app.database.transaction_values import Undecided
from tasks_app.models import LimitChange, LimitedTask, Task
from tasks_app.writer import housekeeping
from taskstore.errors import StoreBusy
from taskstore.types.limits import Rate
from taskstore.types.tasks import Change, NewTask

from .databases import only_postgresql
from .people import ANN, BOB

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    monkeypatch.setattr(limit_changes, "STEP", 3)


@pytest.fixture
def interrupted(monkeypatch):
    """Who changes limits dies after the first step."""
    monkeypatch.setattr("tasks_app.managers.finish_changes", lambda using: False)


def add(number, group="mail", **fields):
    adds = [NewTask(group=group, labels={"user": "abc"[place % 3], "tenant": "t"}, **fields) for place in range(number)]
    return Task.objects.commit(owner=ANN, adds=adds)


def claim(limit=10, groups="mail"):
    return Task.objects.claim(groups, owner=BOB, limit=limit)


def users(tasks):
    return "".join(sorted(task.labels["user"] for task in tasks))


CLAIM, QUERY = (kind(groups=("mail",), owner=BOB, duration_ms=60_000, limit=10) for kind in (Claim, Query))


def outcome_of(operation=CLAIM):
    """What an operation is told that does not try again."""
    dialect = dialect_of("default")
    with transaction.atomic():
        [found] = dialect.drive(transact([operation], dialect)).decisions
        transaction.set_rollback(True)
    return found


def is_exact(by="user"):
    """Whether the rows are those of the tasks that are there."""
    kept = set(LimitedTask.objects.values_list("id", "group", "value", "priority", "available_at_ms", "leased"))
    return kept == {
        (task.id, task.group, task.labels.get(by, ""), task.priority, task.available_at_ms, int(task.leased))
        for task in Task.objects.all()
    }


def test_a_large_group_is_limited_once_it_is_set():
    add(20)
    Task.objects.set_limits("mail", running=2, by="user")
    assert users(claim()) == "aabbcc"
    assert not LimitChange.objects.exists()
    assert is_exact()


def test_each_group_of_a_prefix_is_limited_and_no_other():
    for group in ("mai", "mail", "mail/a", "mail/b", "mailz", "man"):
        add(4, group)
    Task.objects.set_limits("mail/*", running=1, by="user")
    assert [len(claim(10, group)) for group in ("mai", "mail", "mail/a", "mail/b", "mailz", "man")] == [
        4,
        4,
        3,
        3,
        4,
        4,
    ]
    assert set(LimitedTask.objects.values_list("group", flat=True)) == {"mail/a", "mail/b"}


def test_a_wider_limit_holds_where_a_narrower_one_is_removed():
    add(9)
    Task.objects.set_limits("*", running=1, by="tenant")
    Task.objects.set_limits("mail", running=1, by="user")
    assert is_exact()
    Task.objects.remove_limits("mail")
    assert is_exact("tenant")
    assert len(claim()) == 1


def test_claims_are_put_off_until_the_last_step(interrupted):
    add(12)
    claim(9)  # At least one of each user.
    add(9, "other")
    Task.objects.set_limits("mail", running=1, by="user")
    assert outcome_of() is outcome_of(QUERY) is Undecided.LIMITS
    assert uses_of(["mail"])["mail"].why == BEING_CHANGED
    for operation in (CLAIM, QUERY):
        assert outcome_of(replace(operation, groups=("mail", "empty"))) is Undecided.CONTENDED
    assert {task.group for task in claim(5, ["mail", "other"])} == {"other"}
    assert len(claim(9, "other")) == 4
    assert finish_changes("default")
    assert outcome_of() == []
    assert uses_of(["mail"])["mail"].why != BEING_CHANGED


def test_so_are_updates_that_lease(interrupted):
    task, *_ = add(9)
    Task.objects.set_limits("mail", running=1, by="user")
    lease = Commit(owner=BOB, updates=(Change(id=task.id, timespec_ms=-60_000),))
    assert outcome_of(lease) is Undecided.LIMITS
    renamed = Commit(owner=BOB, updates=(Change(id=task.id, labels={"user": "z"}),))
    assert users(outcome_of(renamed)) == "z"


def test_a_rate_alone_needs_no_steps(interrupted):
    add(9)
    Task.objects.set_limits("mail", rate=Rate(2, 60_000))
    assert not LimitChange.objects.exists()
    assert len(claim()) == 2


def test_other_numbers_hold_up_no_claim(interrupted):
    add(9)
    Task.objects.set_limits("mail", running=1, by="user")
    finish_changes("default")
    assert len(claim()) == 3
    assert claim() == []
    Task.objects.set_limits("mail", running=3, by="user")
    assert users(claim(1)) in set("abc")  # Of the first step.
    finish_changes("default")
    assert len(claim()) == 5
    assert claim() == []


@pytest.mark.parametrize("running", [1, None])
def test_another_change_amid_the_steps_takes_their_place(interrupted, running):
    add(9)
    Task.objects.set_limits("mail", running=1, by="user")
    first = LimitChange.objects.get()
    if running:
        Task.objects.set_limits("mail", running=running, by="tenant")
    else:
        Task.objects.remove_limits("mail")
        assert len(outcome_of()) == 9  # Without a limit nobody waits for its rows.
    assert LimitChange.objects.get().pk != first.pk
    assert finish_changes("default")
    assert is_exact("tenant") if running else not LimitedTask.objects.exists()
    assert len(claim()) == (running or 9)


def test_of_two_who_finish_a_change_the_former_leaves_the_later_one_alone(interrupted, monkeypatch):
    add(12)
    Task.objects.set_limits("mail", running=1, by="user")
    note, changed = limit_changes._note, list[int]()

    def note_amid_another_change(change, place, dialect):
        place = note(change, place, dialect)
        if not changed:
            changed.append(1)
            monkeypatch.setattr(limit_changes, "_note", note)
            limit_changes._change("mail", limits_now()[0]._replace(by="tenant"), "", dialect)
        return place

    def limits_now():
        return limit_changes.limits_now(dialect_of("default"))

    monkeypatch.setattr(limit_changes, "_note", note_amid_another_change)
    finish_changes("default")
    assert outcome_of() is Undecided.LIMITS
    finish_changes("default")
    assert is_exact("tenant")


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_committed_between_the_steps_is_kept(interrupted, monkeypatch, seed):
    chance = random.Random(seed)
    tasks = add(12)
    claimed = claim(4)
    Task.objects.set_limits("mail", running=2, by="user") if seed % 2 else None

    def between(_):
        """Others commit while whoever changes the limit pauses."""
        tasks[:] = [task for task in Task.objects.group("mail") if task.owner in (BOB, None) or not task.leased]
        one, other = chance.sample(tasks, 2)
        Task.objects.commit(
            owner=BOB,
            adds=[NewTask(group="mail", labels={"user": chance.choice("abcd")})],
            deletes=[one.id],
            updates=[Change(id=other.id, labels={"user": chance.choice("abcd")}, priority=chance.randint(0, 3))],
        )

    monkeypatch.setattr("tasks_app.database.limit_changes.time.sleep", between)
    assert claimed
    Task.objects.set_limits("mail", running=1, by="user" if seed % 2 == 0 else "tenant")
    assert finish_changes("default")
    assert is_exact("user" if seed % 2 == 0 else "tenant")
    Task.objects.remove_limits("mail")
    finish_changes("default")
    assert not LimitedTask.objects.exists()


@contextmanager
def open_transaction(work):
    """Somebody does this in a transaction of Django, which lasts."""
    begun, ends = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            work()
            begun.set()
            ends.wait(20)
        connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait(20)
    yield
    ends.set()
    thread.join()


@only_postgresql
def test_a_step_waits_a_moment_only_for_a_long_transaction(interrupted):
    """Everybody else waits with it."""
    add(9)
    Task.objects.set_limits("mail", running=1, by="user")
    with open_transaction(lambda: add(1, "other")):
        begun_s = time.monotonic()
        assert not finish_changes("default")
        assert time.monotonic() - begun_s < 1
    assert finish_changes("default")


@only_postgresql
def test_who_waits_for_a_transaction_that_changes_limits_is_refused_in_time(served):
    add(1)
    claims = [served.start(Task.objects.aperform(replace(CLAIM, groups=("empty",), wait_ms=20_000)))]
    time.sleep(0.1)
    took_s = []
    with open_transaction(lambda: Task.objects.set_limits("tiny", running=1)):
        operations: list[Commit | Claim] = [
            Commit(owner=ANN, adds=(NewTask(group="other"),)),
            replace(CLAIM, wait_ms=3_000),
        ]
        asked = []
        for number in range(30):  # One after the other: each comes while the others' batch waits.
            begun_s = time.monotonic()
            asked.append(served.start(Task.objects.aperform(operations[number % 2])))
            asked[-1].add_done_callback(lambda _, begun_s=begun_s: took_s.append(time.monotonic() - begun_s))
            time.sleep(0.1)
        for one in asked:
            with pytest.raises(StoreBusy, match="busy with other transactions"):
                one.result(20)
    assert max(took_s) < 2 * PATIENCE_S - 1  # One after the other, two of them took twice the patience.
    [task] = served.run(Task.objects.acommit(owner=ANN, adds=[NewTask(group="empty")]))
    assert [found.origin for found in claims[0].result(20)] == [task.id]


@pytest.fixture
def died(interrupted, monkeypatch):
    add(9)
    Task.objects.set_limits("mail", running=1, by="user")
    assert LimitChange.objects.exists()
    monkeypatch.setattr(housekeeping, "LIMITS_EVERY_S", 0.05)


def test_the_housekeeper_finishes_what_a_dead_process_began(died, served):
    assert users(served.run(Task.objects.aclaim("mail", owner=BOB, limit=10))) == "abc"
    assert not LimitChange.objects.exists()


def test_a_server_does_the_steps_aside_and_who_waits_takes_what_is_allowed(served):
    add(9)
    Task.objects.set_limits("mail", running=1, by="tenant")
    [held] = claim()
    waiting = served.start(Task.objects.aperform(replace(CLAIM, wait_ms=20_000)))
    time.sleep(0.1)
    Task.objects.set_limits("mail", running=1, by="user")
    assert {task.id for task in waiting.result(20)}.isdisjoint({held.id})
    assert LimitedTask.objects.filter(leased=1).count() == 3
