"""Races for a key, forced: two connections, and the second one moves while the first one's transaction is open."""

import asyncio

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from tasks_app.core.operations import Commit
from tasks_app.models import Task, UniqueKey
from tasks_app.writer.writer import Writer
from taskstore.types.tasks import NewTask

from .databases import only_postgresql
from .people import ANN, BOB
from .test_races import ann, bob, commit, patience, wait_until_held_up  # noqa: F401 - fixtures.

LETTER = NewTask(group="mail", unique="Bob")


def living():
    return list(Task.objects.order_by("id").values_list("id", flat=True))


def test_of_two_who_add_one_key_the_second_finds_the_task_of_the_first(ann, bob):  # noqa: F811
    with ann.transaction() as hers:
        [first] = ann.do(lambda: commit(ANN, adds=[LETTER]))
        asked = bob.start(lambda: commit(BOB, adds=[LETTER]))
        wait_until_held_up(bob, asked)
        hers.commit()
    [second] = asked.result(20)
    assert (second.id, second.duplicate) == (first.id, True)
    assert living() == [first.id]


def test_who_waited_for_a_key_takes_it_when_the_first_takes_it_back(ann, bob):  # noqa: F811
    with ann.transaction() as hers:
        ann.do(lambda: commit(ANN, adds=[LETTER]))
        asked = bob.start(lambda: commit(BOB, adds=[LETTER]))
        wait_until_held_up(bob, asked)
        hers.roll_back()
    [second] = asked.result(20)
    assert not second.duplicate
    assert living() == [second.id] == list(UniqueKey.objects.values_list("origin", flat=True))


def test_crossing_keys_of_two_commits_do_not_lock_each_other_out(ann, bob):  # noqa: F811
    other = NewTask(group="mail", unique="Ann")
    with ann.transaction() as hers:
        ann.do(lambda: commit(ANN, adds=[other, LETTER]))
        asked = bob.start(lambda: commit(BOB, adds=[LETTER, other]))
        wait_until_held_up(bob, asked)
        hers.commit()
    assert [task.duplicate for task in asked.result(20)] == [True, True]
    assert len(living()) == 2


@only_postgresql
def test_a_key_that_an_open_transaction_takes_stalls_nobody_else_in_the_writers_batch(ann):  # noqa: F811
    async def share_a_batch():
        writer = Writer.start()
        try:
            with ann.transaction() as hers:
                [first] = await sync_to_async(ann.do)(lambda: commit(ANN, adds=[LETTER]))
                waits = writer.submit(Commit(owner=BOB, adds=(LETTER,)))
                [other] = await writer.submit(Commit(owner=BOB, adds=(NewTask(group="mail", unique="other"),)))
                assert not waits.done()
                hers.commit()
            return first, other, *await waits
        finally:
            await writer.stop()

    first, other, again = async_to_sync(share_a_batch)()
    assert (again.id, type(again).__name__) == (first.id, "Duplicate")
    assert living() == [first.id, other.id]


@pytest.mark.parametrize("keys", [2, 600])
def test_many_who_add_the_same_keys_at_once_make_each_task_once(transactional_db, keys):
    adds = tuple(NewTask(group="mail", unique=str(number)) for number in range(keys))

    async def add_all():
        writer = Writer.start()
        try:
            return await asyncio.gather(*[writer.submit(Commit(owner=ANN, adds=adds)) for _ in range(5)])
        finally:
            await writer.stop()

    answers = async_to_sync(add_all)()
    assert len(living()) == keys
    assert {tuple(task.id for task in tasks) for tasks in answers} == {tuple(living())}
