"""Plain claims and deletes in sets, on PostgreSQL: each unusual thing alone. Random batches: test_two_ways.py."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import ANY

import pytest
from asgiref.sync import sync_to_async

from tasks_app.core.operations import Claim, Commit, GroupScope, Operation, Operator, ResendKey
from tasks_app.database import new_groups, plain_sets, transact
from tasks_app.database.plain_sets import Sets
from tasks_app.models import CancelledTask, EndedTask, PausedGroup, Task
from tasks_app.writer.connection import PostgreSQLConnection
from taskstore.errors import CommitRefused, Forbidden, KeyReused
from taskstore.types.batches import NewBatch, Plan
from taskstore.types.schedules import SCHEDULES
from taskstore.types.tasks import Change, Ending, NewTask
from tests.behaviour.databases import only_postgresql
from tests.behaviour.people import ANN, BOB

pytestmark = [only_postgresql, pytest.mark.django_db(transaction=True)]


def added(*tasks: NewTask) -> list[int]:
    return [task.id for task in Task.objects.commit(owner=ANN, adds=tasks)]


MAIL = NewTask(group="mail")


@pytest.fixture(autouse=True)
def _small_sets(monkeypatch):
    monkeypatch.setattr(plain_sets, "LEAST", 0)
    new_groups.memories.clear()


@pytest.fixture
def done(monkeypatch):
    """What comes of batches by a connection that knows candidates of "mail", and how many operations sets did."""
    in_sets = [0]
    outcome = Sets.outcome

    def noted(sets: Sets, answers: Any) -> Any:
        made = outcome(sets, answers)
        in_sets[0] += len(made.decisions)
        return made

    monkeypatch.setattr(Sets, "outcome", noted)

    def do(known: Sequence[int], *batches: Sequence[Operation] | Callable[[], object]) -> tuple[list[Any], int]:
        in_sets[0] = 0

        async def run() -> list[Any]:
            connection = PostgreSQLConnection("default")
            found: list[Any] = []
            await connection.run(transact([end(2**60)], connection.dialect))  # From now on it knows the limits.
            for operations in batches:
                if callable(operations):
                    await sync_to_async(operations)()
                    continue
                connection.dialect.know_candidates({"mail": known})
                found += (await connection.run(transact(operations, connection.dialect))).decisions
            await connection.close()
            return found

        return asyncio.run(run()), in_sets[0]

    return do


def claim(limit: int = 1, key: ResendKey | None = None) -> Claim:
    return Claim(groups=("mail",), owner=BOB, limit=limit, key=key)


def end(*ids: int, owner: int = ANN, **more: Any) -> Commit:
    return Commit(owner=owner, deletes=ids, **more)


def test_claims_and_deletes_are_done_at_once(done):
    one, two, three = added(MAIL, MAIL, MAIL)
    ([], [first, second]), in_sets = done([one, two], [end(three), claim(2)])
    assert in_sets == 2
    assert {first.origin, second.origin} == {one, two}
    assert first.id < second.id


def test_what_has_a_higher_priority_goes_first(done):
    low = added(MAIL, MAIL)
    [high] = added(NewTask(group="mail", priority=1))
    ([task],), in_sets = done(low, [claim()])
    assert (task.origin, in_sets) == (high, 0)


def test_nothing_is_claimed_before_its_time(done):
    now, later = added(MAIL, NewTask(group="mail", timespec_ms=-60_000))
    ([task], nothing), in_sets = done([later, now], [claim(2)], [claim()])
    assert (task.origin, nothing, in_sets) == (now, [], 0)


def test_who_holds_what_an_operator_cancels_is_told(done):
    added(MAIL)
    [held] = Task.objects.claim("mail", owner=BOB)
    cancels = partial(end, owner=0, operator=Operator(name="ann", ending=Ending.CANCELLED))
    (cancelled, of_free), in_sets = done([], [cancels(held.id)], [cancels(*added(MAIL, MAIL))])
    assert (cancelled, of_free, in_sets) == ([], [], 1)
    assert list(CancelledTask.objects.values_list("id", "owner")) == [(held.id, BOB)]


def test_nothing_is_claimed_from_a_paused_group(done):
    ids = added(MAIL, MAIL)
    PausedGroup.objects.create(group="mail")
    assert done(ids, [claim()]) == ([[]], 0)


def test_a_repeated_request_gets_what_the_first_one_got(done):
    one, two, three = added(MAIL, MAIL, MAIL)
    key, other = ResendKey("a", "digest"), ResendKey("b", "digest")
    answers, in_sets = done(
        [one, two], [claim(key=key), end(three, key=other)], [claim(key=key), end(three, key=other)]
    )
    assert [[task.id for task in each] for each in answers[:2]] == [[task.id for task in each] for each in answers[2:]]
    assert in_sets == 2
    assert len(Task.objects.group("mail")) == 1
    [reused], in_sets = done(added(MAIL), [claim(key=ResendKey("a", "another"))])
    assert isinstance(reused, KeyReused)
    assert in_sets == 0


@pytest.mark.parametrize("name", ["few", "few/*"])
def test_only_what_limits_apply_to_goes_another_way(done, name):
    Task.objects.set_limits(name, running=1)
    one, two, three = added(MAIL, NewTask(group=name.replace("*", "a")), NewTask(group="fewer"))
    assert done([one], [end(two), end(three), claim()])[1] == 2
    assert not Task.objects.exclude(group="mail").exists()


def test_new_limits_are_noticed(done):
    ids = added(MAIL, MAIL, MAIL)
    (*tasks, nothing), in_sets = done(
        ids, [claim()], partial(Task.objects.set_limits, "mail", running=2), *[[claim()]] * 2
    )
    assert ([len(each) for each in tasks], nothing, in_sets) == ([1, 1], [], 1)


def test_the_end_of_a_chain_frees_its_key(done):
    [held] = added(NewTask(group="mail", unique="a"))
    assert done([], [end(held)]) == ([[]], 0)
    [again] = added(NewTask(group="mail", unique="a"))
    assert again > held


def test_the_rules_decide_who_may_end_commands_and_schedules(done):
    command, schedule, plain = added(NewTask(group="commands/mail"), NewTask(group=SCHEDULES), MAIL)
    scope = GroupScope(no_commands_because="no")
    (refused, other, ended), in_sets = done([], [end(each, scope=scope) for each in (command, schedule, plain)])
    assert (type(refused), other, ended, in_sets) == (Forbidden, [], [], 1)


def test_one_task_that_is_missing_keeps_all_of_its_commit_and_no_other(done):
    one, two = added(MAIL, MAIL)
    (refused, ended), in_sets = done([], [end(one, 2**60), end(two)])
    assert isinstance(refused, CommitRefused)
    assert (ended, in_sets) == ([], 1)
    assert [task.id for task in Task.objects.all()] == [one]


def moved(*ids: int, to: str = "mail/old", **more: Any) -> Commit:
    """As a bulk operation moves them."""
    changes = tuple(Change(id=task_id, group=to, timespec_ms=1, release=True) for task_id in ids)
    operator = Operator(name="ann", ending=Ending.MOVED, bulk=7)
    return Commit(owner=0, updates=changes, operator=operator, **more)


def test_a_bulk_operation_moves_what_it_has_known_to_be_a_group(done):
    one, two, three = added(MAIL, MAIL, MAIL)
    # The first look says whether there may be one more group.
    ([task], nothing), in_sets = done([], [moved(one)], [moved(two, three)])
    assert (task.origin, nothing, in_sets) == (one, [], 1)
    assert {task.origin for task in Task.objects.group("mail/old")} == {one, two, three}
    assert {*EndedTask.objects.values_list("id", "ending")} == {(one, "moved"), (two, "moved"), (three, "moved")}


@pytest.mark.parametrize(
    ("add", "to"),
    [
        (NewTask(group="commands/mail"), "mail/old"),
        (MAIL, "commands/mail"),
        (NewTask(group=SCHEDULES), "mail/old"),
        (MAIL, SCHEDULES),
        (MAIL, "jobs/mail/failed"),
        (NewTask(group="few"), "mail/old"),
        (MAIL, "few"),
        (NewTask(group="mail", unique="a"), "mail/old"),
    ],
)
def test_what_is_unusual_is_moved_another_way(done, add, to):
    Task.objects.set_limits("few", running=1)
    first, one, two = added(add, replace(add, unique=add.unique and "b"), MAIL)
    assert done([], [moved(first, to=to)], [moved(one, two, to=to)]) == ([[ANY], [ANY, ANY]], 0)


def test_members_of_batches_are_moved_another_way(done):
    [first] = added(MAIL)
    new = Commit(owner=ANN, adds=(MAIL,), batch=NewBatch(plan=Plan(then=Plan((NewTask(group="then"),)))))
    [member] = Task.objects.perform(new)
    assert done([], [moved(first)], [moved(member.id)]) == ([[ANY], [ANY]], 0)


def test_successors_have_ids_in_the_order_of_the_changes(done):
    first, one, two, three = added(MAIL, MAIL, MAIL, MAIL)
    assert done([], [moved(first)], [moved(three, one, two)])[1] == 1
    assert [task.origin for task in Task.objects.group("mail/old").order_by("id")] == [first, three, one, two]


def test_one_task_that_is_missing_keeps_all_of_a_move(done):
    first, one = added(MAIL, MAIL)
    (_, refused), in_sets = done([], [moved(first)], [moved(one, 2**60)])
    assert (type(refused), in_sets) == (CommitRefused, 0)
    assert Task.objects.group("mail").get().id == one
