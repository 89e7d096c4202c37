"""Races, forced: two connections, and the second one moves while the first one's transaction is open."""

import asyncio
import threading
import time

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection, transaction

from tasks_app import database
from tasks_app.core.operations import Claim, Commit, Query, ResendKey
from tasks_app.models import Task
from tasks_app.reading.history import chain_of
from tasks_app.writer.writer import Writer
from taskstore.errors import CommitRefused, StoreBusy
from taskstore.types.tasks import Change, NewTask, Order, Refusal

from .databases import only_postgresql, only_sqlite
from .people import ANN, BOB
from .rivals import PATIENCE_S, Rival, is_waiting_for_a_lock, wait_until

MAIL = NewTask(group="mail")


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """On a busy machine the next step of a rival may come later than the store would let somebody wait."""
    monkeypatch.setattr(database.Dialect, "patience_s", float(PATIENCE_S))


@pytest.fixture
def ann(transactional_db):
    with Rival("Ann") as ann:
        yield ann


@pytest.fixture
def bob(transactional_db, monkeypatch):
    """Bob, who says when he has begun to look."""
    turn = database.SQLite.turn
    with Rival("Bob") as bob:

        def turn_that_tells(dialect):
            if threading.current_thread().name.startswith("Bob"):
                bob.has_begun.set()
            return turn(dialect)

        monkeypatch.setattr(database.SQLite, "turn", turn_that_tells)
        yield bob


@pytest.fixture
def task(transactional_db):
    [task] = Task.objects.commit(owner=ANN, adds=[MAIL])
    return task


def wait_until_held_up(bob, asked):
    """Until Bob can't go on because of Ann: a lock of PostgreSQL, or the one writer of SQLite."""
    if connection.vendor == "postgresql":
        wait_until(lambda: is_waiting_for_a_lock(bob))
    else:
        assert bob.has_begun.wait(20)
    assert not asked.done()


def commit(owner, **asked):
    """The new tasks, or why it was refused."""
    try:
        return Task.objects.commit(owner=owner, **asked)
    except CommitRefused as error:
        return error.refusal


def claim(**asked):
    """Bob's claim: the tasks, or why it was refused."""
    try:
        return Task.objects.claim("mail", owner=BOB, **asked)
    except CommitRefused as error:
        return error.refusal


def origins(tasks):
    return [task.origin for task in tasks]


def test_of_two_who_delete_one_task_the_second_is_refused(ann, bob, task):
    with ann.transaction() as hers:
        assert ann.do(lambda: commit(ANN, deletes=[task.id])) == []
        asked = bob.start(lambda: commit(BOB, deletes=[task.id]))
        wait_until_held_up(bob, asked)
        hers.commit()
    assert asked.result(20) == Refusal(deletes=(task.id,))


def test_who_waited_may_delete_when_the_first_takes_it_back(ann, bob, task):
    with ann.transaction() as hers:
        ann.do(lambda: commit(ANN, deletes=[task.id]))
        asked = bob.start(lambda: commit(BOB, deletes=[task.id]))
        wait_until_held_up(bob, asked)
        hers.roll_back()
    assert asked.result(20) == []
    assert Task.objects.groups() == []


def test_what_a_commit_depends_on_stays_until_it_is_done(ann, bob, task):
    with ann.transaction() as hers:
        ann.do(lambda: commit(ANN, adds=[MAIL], depends=[task.id]))
        asked = bob.start(lambda: commit(BOB, deletes=[task.id]))
        wait_until_held_up(bob, asked)
        hers.commit()
    assert asked.result(20) == []


def test_crossing_depends_and_updates_let_one_through(ann, bob, task):
    """Each depends on what the other replaces: in no order can both happen."""
    [other] = Task.objects.commit(owner=ANN, adds=[MAIL])
    with ann.transaction() as hers:
        assert len(ann.do(lambda: commit(ANN, updates=[Change(id=task.id)], depends=[other.id]))) == 1
        asked = bob.start(lambda: commit(BOB, updates=[Change(id=other.id)], depends=[task.id]))
        wait_until_held_up(bob, asked)
        hers.commit()
    assert asked.result(20) == Refusal(depends=(task.id,))


@only_postgresql
def test_crossing_depends_and_updates_that_lock_each_other_out_let_one_through(ann, bob, task):
    """Both have locked what they update before either locks what it depends on: a deadlock, resolved."""
    [other] = Task.objects.commit(owner=ANN, adds=[MAIL])
    for rival in (ann, bob):
        rival.steps.stop_before("FOR KEY SHARE")
    asked = [
        ann.start(lambda: commit(ANN, updates=[Change(id=task.id)], depends=[other.id])),
        bob.start(lambda: commit(BOB, updates=[Change(id=other.id)], depends=[task.id])),
    ]
    for rival in (ann, bob):
        rival.steps.wait_until_there()
    for rival in (ann, bob):
        rival.steps.go_on()
    answers = [future.result(20) for future in asked]
    refusals = [answer for answer in answers if isinstance(answer, Refusal)]
    assert refusals in ([Refusal(depends=(other.id,))], [Refusal(depends=(task.id,))])


def test_two_who_delete_the_same_tasks_in_another_order_do_not_mix(ann, bob, transactional_db):
    ids = [task.id for task in Task.objects.commit(owner=ANN, adds=[MAIL] * 50)]
    both_ready = threading.Barrier(2)

    def delete(owner, asked):
        both_ready.wait(20)
        return commit(owner, deletes=asked)

    answers = [
        future.result(20) for future in (ann.start(lambda: delete(ANN, ids)), bob.start(lambda: delete(BOB, ids[::-1])))
    ]
    assert [] in answers
    assert any(isinstance(answer, Refusal) and set(answer.deletes) == set(ids) for answer in answers)


@only_postgresql
def test_tasks_are_locked_in_the_order_of_their_ids_however_they_are_named(ann, bob, transactional_db):
    """Else two commits that share tasks would lock each other out."""
    first, second, third = (task.id for task in Task.objects.commit(owner=ANN, adds=[MAIL] * 3))
    with ann.transaction():
        ann.do(lambda: Task.objects.select_for_update().get(id=second))
        asked = bob.start(lambda: commit(BOB, deletes=[third, second, first]))
        wait_until_held_up(bob, asked)
        with transaction.atomic():
            free = Task.objects.select_for_update(skip_locked=True).values_list("id", flat=True)
            assert list(free) == [third]
    assert asked.result(20) == []


def test_a_claim_never_takes_what_another_claim_is_taking(ann, bob, task):
    with ann.transaction() as hers:
        [held] = ann.do(lambda: Task.objects.claim("mail", owner=ANN))
        asked = bob.start(lambda: Task.objects.claim("mail", owner=BOB))
        wait_until_looked(bob, asked)
        hers.commit()
    assert asked.result(20) == []
    assert Task.objects.find([held.id]) == [held]


def wait_until_looked(bob, asked):
    """Until Bob has seen that all there is is locked; he must not have said anything yet."""
    if connection.vendor == "postgresql":
        bob.steps.stop_before("SKIP LOCKED")
        bob.steps.wait_until_there()
        bob.steps.go_on()
    else:
        assert bob.has_begun.wait(20)
    assert not asked.done()


def test_a_claim_does_not_say_nothing_while_another_one_may_give_its_task_back(ann, bob, task):
    with ann.transaction() as hers:
        ann.do(lambda: Task.objects.claim("mail", owner=ANN))
        asked = bob.start(lambda: Task.objects.claim("mail", owner=BOB))
        wait_until_looked(bob, asked)
        hers.roll_back()
    assert origins(asked.result(20)) == [task.id]


def test_a_claim_does_not_say_nothing_while_all_there_is_may_be_deleted(ann, bob, task):
    with ann.transaction() as hers:
        ann.do(lambda: commit(ANN, deletes=[task.id]))
        asked = bob.start(lambda: Task.objects.claim("mail", owner=BOB))
        wait_until_looked(bob, asked)
        hers.commit()
    assert asked.result(20) == []


def test_a_claim_finds_the_successor_of_the_task_that_it_waited_for(ann, bob, task):
    with ann.transaction() as hers:
        [successor] = ann.do(lambda: commit(ANN, updates=[Change(id=task.id, data=b"2")]))
        asked = bob.start(lambda: Task.objects.claim("mail", owner=BOB))
        wait_until_looked(bob, asked)
        hers.commit()
    [held] = asked.result(20)
    assert (held.origin, held.data) == (task.id, b"2")
    assert held.id > successor.id


def test_a_claim_takes_what_is_given_back_when_all_was_locked(ann, bob, transactional_db):
    tasks = Task.objects.commit(owner=ANN, adds=[MAIL] * 5)
    with ann.transaction() as hers:
        assert len(ann.do(lambda: Task.objects.claim("mail", owner=ANN, limit=5))) == 5
        asked = bob.start(lambda: Task.objects.claim("mail", owner=BOB, limit=5))
        wait_until_looked(bob, asked)
        hers.roll_back()
    assert set(origins(asked.result(20))) <= {task.id for task in tasks}
    assert asked.result()


def test_a_delete_of_what_is_being_claimed_is_refused(ann, bob, task):
    with ann.transaction() as hers:
        ann.do(lambda: Task.objects.claim("mail", owner=ANN))
        asked = bob.start(lambda: commit(BOB, deletes=[task.id]))
        wait_until_held_up(bob, asked)
        hers.commit()
    assert asked.result(20) == Refusal(deletes=(task.id,))


def test_a_claim_waits_for_what_it_depends_on(ann, bob, task):
    [config] = Task.objects.commit(owner=ANN, adds=[NewTask(group="config")])

    with ann.transaction() as hers:
        ann.do(lambda: commit(ANN, deletes=[config.id]))
        asked = bob.start(lambda: claim(depends=[config.id]))
        wait_until_held_up(bob, asked)
        hers.commit()
    assert asked.result(20) == Refusal(depends=(config.id,))
    assert Task.objects.find([task.id]) == [task]


@only_postgresql
def test_commits_that_depend_on_one_task_do_not_wait_for_each_other(ann, bob, task):
    with ann.transaction():
        assert len(ann.do(lambda: commit(ANN, adds=[MAIL], depends=[task.id]))) == 1
        assert len(bob.do(lambda: commit(BOB, adds=[MAIL], depends=[task.id]))) == 1


@only_postgresql
@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("limit", [1, 2])
def test_a_claim_never_waits_while_there_is_something_that_nobody_is_taking(ann, bob, order, limit, transactional_db):
    tasks = Task.objects.commit(owner=ANN, adds=[MAIL] * 5)
    with ann.transaction():
        held = ann.do(lambda: Task.objects.claim("mail", owner=ANN, limit=3, order=Order.OLDEST))
        taken = bob.do(lambda: Task.objects.claim("mail", owner=BOB, limit=limit, order=order))
        free = [task.id for task in tasks if task.id not in origins(held)]
        assert set(origins(taken)) <= set(free)
        assert len(taken) == limit


@only_postgresql
def test_a_claim_takes_a_lower_priority_rather_than_wait(ann, bob, transactional_db):
    [high, low] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", priority=5), MAIL])
    with ann.transaction():
        assert origins(ann.do(lambda: Task.objects.claim("mail", owner=ANN))) == [high.id]
        assert origins(bob.do(lambda: Task.objects.claim("mail", owner=BOB))) == [low.id]


@only_postgresql
def test_a_task_that_changes_its_priority_meanwhile_is_not_overlooked(ann, bob, transactional_db):
    """It was among the low ones when Bob looked there, and among the high ones when he looked there."""
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", priority=-5)])
    bob.steps.stop_before(") = 1 AND NOT EXISTS")
    with ann.transaction():
        ann.do(lambda: commit(ANN, updates=[Change(id=task.id, priority=5)]))
        asked = bob.start(lambda: Task.objects.claim("mail", owner=BOB))
        bob.steps.wait_until_there()
    bob.steps.go_on()
    [held] = asked.result(20)
    assert (held.origin, held.priority) == (task.id, 5)


CLAIM = Claim(groups=("mail",), owner=BOB)
QUERY = Query(groups=("mail",), duration_ms=60_000)


@only_postgresql
@pytest.mark.parametrize(("claim", "last_look"), [(CLAIM, ") = 1 AND NOT EXISTS"), (QUERY, "SELECT available_at_ms, ")])
def test_a_claim_finds_what_took_the_place_of_a_locked_task_after_it_had_read_the_time(
    ann, bob, task, claim, last_look
):
    bob.steps.stop_before(last_look)
    with ann.transaction() as hers:
        ann.do(lambda: Task.objects.select_for_update().get(id=task.id))
        asked = bob.start(lambda: Task.objects.perform(claim))
        bob.steps.wait_until_there()
        looked_at_ms = Task.objects.now_ms()
        wait_until(lambda: Task.objects.now_ms() > looked_at_ms)
        [other] = ann.do(lambda: commit(ANN, deletes=[task.id], adds=[MAIL]))
        hers.commit()
    bob.steps.go_on()
    assert origins(asked.result(20)) == [other.id]


@only_postgresql
def test_a_lease_that_ends_while_somebody_waits_for_the_task_has_ended(ann, bob, task):
    [held] = Task.objects.claim("mail", owner=ANN, duration_ms=300)
    with ann.transaction() as hers:
        ann.do(lambda: commit(ANN, updates=[Change(id=held.id, timespec_ms=-60_000)]))
        asked = bob.start(lambda: commit(BOB, deletes=[held.id]))
        wait_until_held_up(bob, asked)
        wait_until(lambda: Task.objects.now_ms() > held.available_at_ms)
        hers.roll_back()
    assert asked.result(20) == []


def try_to(what):
    with pytest.raises(StoreBusy):
        what()


def test_who_waits_too_long_is_told_to_try_again(ann, bob, task, monkeypatch):
    monkeypatch.setattr(database.Dialect, "patience_s", 0.1)
    bob.do(impatient)
    with ann.transaction():
        [held] = ann.do(lambda: Task.objects.claim("mail", owner=ANN))
        bob.do(lambda: try_to(lambda: commit(BOB, deletes=[task.id])))
        bob.do(lambda: try_to(lambda: Task.objects.claim("mail", owner=BOB)))
    assert Task.objects.find([held.id]) == [held]
    assert bob.do(lambda: commit(ANN, deletes=[held.id])) == []


class Late(database.PostgreSQL):
    """All the patience has gone into the wait for a connection."""

    def __init__(self, using, *, waits):
        super().__init__(using, waits=waits)
        self.began_s -= self.patience_s


@only_postgresql
def test_who_has_waited_for_a_connection_does_not_wait_as_long_again_for_locked_rows(ann, bob, task, monkeypatch):
    monkeypatch.setattr(database.Dialect, "patience_s", 3_600)
    monkeypatch.setitem(database.DIALECTS, "postgresql", Late)
    with ann.transaction():
        ann.do(lambda: commit(ANN, deletes=[task.id]))
        bob.do(lambda: try_to(lambda: commit(BOB, deletes=[task.id])))


@only_postgresql
def test_who_waited_for_one_task_does_not_wait_as_long_again_for_the_next(ann, bob, task, monkeypatch):
    patience_s = 5
    monkeypatch.setattr(database.Dialect, "patience_s", patience_s)
    [other] = Task.objects.commit(owner=ANN, adds=[MAIL])
    with Rival("Cleo") as cleo, cleo.transaction() as hers, ann.transaction():
        cleo.do(lambda: commit(ANN, deletes=[task.id]))
        ann.do(lambda: commit(ANN, deletes=[other.id]))
        asked = bob.start(lambda: try_to(lambda: commit(BOB, deletes=[task.id, other.id])))
        wait_until_held_up(bob, asked)
        time.sleep(patience_s * 0.7)
        hers.roll_back()
        let_go_s = time.monotonic()
        asked.result(20)
        assert time.monotonic() - let_go_s < patience_s * 0.8, "it is what was left of it, and not all of it again"


def impatient():
    """SQLite waits by itself; how long is a setting of the connection."""
    connection.ensure_connection()
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 100")


@only_sqlite
def test_who_waits_too_long_for_a_turn_is_told_to_try_again(bob, task, monkeypatch):
    monkeypatch.setattr(database.Dialect, "patience_s", 0.1)
    with database.SQLite("default", waits=True).turn():
        bob.do(lambda: try_to(lambda: commit(BOB, deletes=[task.id])))
    assert bob.do(lambda: commit(BOB, deletes=[task.id])) == []


@only_postgresql
def test_a_claim_whose_depends_are_gone_says_so_though_all_is_locked(ann, bob, task):
    with ann.transaction():
        ann.do(lambda: Task.objects.claim("mail", owner=ANN))
        answer = bob.do(lambda: claim(depends=[2**53]))
    assert answer == Refusal(depends=(2**53,))


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("ends", [False, True])
def test_a_history_is_of_one_moment_though_the_task_moves_on_meanwhile(bob, task, place, ends):
    """Before each of the queries that it takes, the task is claimed, or claimed and deleted."""
    [held] = Task.objects.claim("mail", owner=ANN, duration_ms=0)
    bob.steps.stop_before("SELECT", skip=place)
    asked = bob.start(lambda: chain_of(held.id))
    bob.steps.wait_until_there()
    [next_one] = Task.objects.claim("mail", owner=ANN)
    if ends:
        Task.objects.commit(owner=ANN, deletes=[next_one.id])
    bob.steps.go_on()
    chain = asked.result(20)
    assert [step.successor for step in chain.ended] == [
        *(step.id for step in chain.ended[1:]),
        chain.living.id if chain.living else None,
    ]
    assert chain.group == "mail"


@pytest.mark.parametrize("place", [1, 2])
def test_without_a_trail_a_task_that_ends_meanwhile_is_not_known(bob, task, place, settings):
    settings.TASKSTORE_HISTORY = "off"
    [held] = Task.objects.claim("mail", owner=ANN)
    bob.steps.stop_before("SELECT", skip=place)
    asked = bob.start(lambda: chain_of(held.id))
    bob.steps.wait_until_there()
    Task.objects.commit(owner=ANN, deletes=[held.id])
    bob.steps.go_on()
    chain = asked.result(20)
    assert chain is None or chain.group == "mail"
    assert chain_of(held.id) is None


def test_of_two_with_one_key_the_second_gets_the_answer_of_the_first(ann, bob):
    operation = Commit(owner=ANN, adds=(MAIL,), key=ResendKey("token 1/a", "digest"))
    with ann.transaction() as transaction:
        [first] = ann.do(lambda: Task.objects.perform(operation))
        asked = bob.start(lambda: Task.objects.perform(operation))
        wait_until_held_up(bob, asked)
        transaction.commit()
    [second] = asked.result(20)
    assert second.id == first.id
    assert [task.id for task in Task.objects.all()] == [first.id]


@only_postgresql
def test_a_key_in_use_fails_nobody_in_the_writers_batch(ann):
    again, other = (
        Commit(owner=owner, adds=(MAIL,), key=ResendKey(f"token 1/{owner}", "digest")) for owner in (ANN, BOB)
    )

    async def share_a_batch():
        writer = Writer.start()
        try:
            with ann.transaction() as transaction:
                [first] = await sync_to_async(ann.do)(lambda: Task.objects.perform(again))
                asked = [writer.submit(operation) for operation in (again, other)]
                await sync_to_async(wait_until)(is_anybody_waiting_for_a_lock)
                transaction.commit()
            return [[first], *await asyncio.gather(*asked)]
        finally:
            await writer.stop()

    [[first], [second], [third]] = async_to_sync(share_a_batch)()
    assert second.id == first.id
    assert {task.id for task in Task.objects.all()} == {first.id, third.id}


def is_anybody_waiting_for_a_lock():
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT EXISTS (
                SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
            )
            """
        )
        return bool(cursor.fetchone()[0])
