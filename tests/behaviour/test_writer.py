"""The writer: many operations in one transaction, each answered as if it had been alone."""

import asyncio

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection

from tasks_app import database
from tasks_app.core.operations import Claim, Commit
from tasks_app.models import Task
from taskstore.errors import CommitRefused, StoreUnavailable
from taskstore.types.tasks import NewTask, Refusal

from ..emptying import empty
from .databases import only_postgresql, only_sqlite
from .people import ANN, BOB
from .rivals import Rival

MAIL = NewTask(group="mail")


def together(served, *coroutines):
    """What comes of each when they arrive at once."""

    async def gather():
        return await asyncio.gather(*coroutines, return_exceptions=True)

    return served.run(gather())


def add(count=1):
    return Task.objects.commit(owner=ANN, adds=[MAIL] * count)


def test_of_many_claims_at_once_each_gets_a_task_of_its_own_or_nothing(served):
    tasks = add(30)
    answers = together(served, *(Task.objects.aclaim("mail", owner=BOB) for _ in range(50)))
    assert sorted(task.origin for answer in answers for task in answer) == [task.id for task in tasks]
    assert sorted(map(len, answers)) == [0] * 20 + [1] * 30


def test_of_many_who_delete_one_task_at_once_one_succeeds(served):
    [task] = add()
    answers = together(served, *(Task.objects.acommit(owner=ANN, deletes=[task.id]) for _ in range(20)))
    refused = [answer.refusal for answer in answers if isinstance(answer, CommitRefused)]
    assert refused == [Refusal(deletes=(task.id,))] * 19
    assert [] in answers


def test_a_refused_operation_leaves_its_neighbours_alone(served):
    [task] = add()
    done, refused, claimed = together(
        served,
        Task.objects.acommit(owner=ANN, adds=[NewTask(group="reports")]),
        Task.objects.acommit(owner=ANN, adds=[MAIL], deletes=[2**53]),
        Task.objects.aclaim("mail", owner=BOB),
    )
    assert [made.group for made in done] == ["reports"]
    assert isinstance(refused, CommitRefused)
    assert [held.origin for held in claimed] == [task.id]


def test_an_operation_that_the_database_refuses_fails_alone(served, monkeypatch):
    """What no check foresaw: the others of its batch are done nevertheless."""
    good, bad, other = together(
        served,
        Task.objects.acommit(owner=ANN, adds=[MAIL]),
        served.writer.submit(Commit(owner=2**63, adds=(MAIL,))),
        Task.objects.acommit(owner=ANN, adds=[MAIL]),
    )
    assert isinstance(bad, Exception)
    assert sorted(task.id for task in Task.objects.all()) == sorted([good[0].id, other[0].id])


def test_a_claim_is_not_told_nothing_because_a_neighbour_takes_the_task_that_was_chosen_for_it(served):
    for _ in range(20):
        tasks = add(2)
        deleted, claimed = together(
            served,
            Task.objects.acommit(owner=ANN, deletes=[tasks[0].id]),
            Task.objects.aclaim("mail", owner=BOB, order="oldest"),
        )
        assert deleted == []
        assert [task.origin for task in claimed] == [tasks[1].id]
        empty()


def test_a_client_that_has_gone_takes_no_task(served):
    [task] = add()

    async def ask_and_go():
        asked = asyncio.ensure_future(Task.objects.aclaim("mail", owner=BOB))
        await asyncio.sleep(0)
        asked.cancel()

    served.run(ask_and_go())
    assert [held.origin for held in Task.objects.claim("mail", owner=ANN)] == [task.id]


def test_a_verb_that_would_wait_for_its_own_loop_says_so(served):
    async def call_it_on_the_loop():
        return Task.objects.commit(owner=ANN, adds=[MAIL])

    with pytest.raises(SynchronousOnlyOperation, match="acommit"):
        served.run(call_it_on_the_loop())


def test_what_arrives_after_the_stop_is_refused(served):
    async def stop_and_ask():
        served.writer.end_waiting()
        served.writer._is_stopping = True
        return await served.writer.submit(Commit(owner=ANN, adds=(MAIL,)))

    with pytest.raises(StoreUnavailable):
        served.run(stop_and_ask())


@only_sqlite
def test_a_claim_that_finds_nothing_writes_nothing(served):
    """Workers ask all day long: each time the disk would be waited for."""

    def version():
        with connection.cursor() as cursor:
            return cursor.execute("PRAGMA data_version").fetchone()

    before = version()
    assert Task.objects.claim("mail", owner=BOB) == []
    assert version() == before
    add()
    assert version() != before


@only_sqlite
def test_a_full_disk_is_told_and_survived(served):
    add()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")  # Tests before may have left room in the file.
    limit_pages(served, 1)  # Not below what is there already.
    with pytest.raises(StoreUnavailable):
        Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", data=b"x" * 10**6)])
    limit_pages(served, 2**30)
    assert len(Task.objects.claim("mail", owner=BOB)) == 1


def limit_pages(served, most):
    async def limit():
        (await served.writer._connection._connected()).execute(f"PRAGMA max_page_count = {most}")

    served.run(limit())


@only_postgresql
def test_a_slow_transaction_of_somebody_else_keeps_only_those_waiting_who_need_it(served):
    [locked, free] = add(2)
    with Rival("Ann") as ann, ann.transaction() as transaction:
        ann.do(lambda: Task.objects.filter(id=locked.id).select_for_update().get())
        asked = served.start(Task.objects.acommit(owner=BOB, deletes=[locked.id]))
        assert served.run(Task.objects.acommit(owner=BOB, deletes=[free.id])) == []
        assert len(served.run(Task.objects.acommit(owner=BOB, adds=[NewTask(group="reports")]))) == 1
        assert not asked.done()
        transaction.commit()
        assert asked.result(20) == []


@only_postgresql
def test_a_claim_that_waits_for_what_is_locked_leaves_the_writer_to_others(served, monkeypatch):
    add()
    batches_done = []
    run = served.writer._connection.run

    async def counted(steps, **options):
        batches_done.append(steps)
        return await run(steps, **options)

    monkeypatch.setattr(served.writer._connection, "run", counted)
    with Rival("Ann") as ann, ann.transaction() as transaction:
        ann.do(lambda: database.run(Claim(groups=("mail",), owner=ANN)))
        asked = served.start(Task.objects.aclaim("mail", owner=BOB))
        served.run(asyncio.sleep(0.3))
        assert not asked.done()
        # As often as it looks again, and not as often as the writer could.
        assert 2 <= len(batches_done) < 30
        transaction.roll_back()
        assert len(asked.result(20)) == 1
