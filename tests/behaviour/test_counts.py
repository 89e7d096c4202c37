"""The counts of groups: what is there, told without counting it."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from threading import Barrier, Thread

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from tasks_app.core.operations import EVERY_GROUP, Claim, Commit, GroupScope, Operation
from tasks_app.core.tally import bucket_of, counter_in
from tasks_app.database import dialect_of, transact
from tasks_app.models import CountDelta, EndedTask, GroupTotal, Rate, Task, WorkDone
from tasks_app.reading.clients import done_per_minute
from tasks_app.reading.counts import Stats, counts_of, group_counts, stats_in_pages
from tasks_app.writer import totals
from tasks_app.writer.totals import Numbers
from tasks_app.writer.writer import Writer
from taskstore.errors import CommitRefused
from taskstore.types.tasks import Change, Ending, NewTask, State

from .people import ANN, BOB

GROUPS = ("mail", "reports", "mail/in")
ENDS = ("jobs/mail/succeeded", "jobs/mail/failed", "commands/default/output")


def assert_counts_are_true() -> None:
    """By what COUNT(*) says. Each task is in one state, which the row says, too."""
    now_ms = Task.objects.now_ms()
    every = group_counts()
    assert list(every) == Task.objects.groups()
    for group, numbers in every.items():
        tasks = Task.objects.get_queryset().in_group(group)
        truth = {state.value: tasks.in_state(state, now_ms).count() for state in State}
        assert Counter(task.state(now_ms).value for task in tasks) == +Counter(truth)
        assert by_state(numbers) == by_state(counts_of(group)) == truth
        assert sum(truth.values()) == numbers.tasks == tasks.count()
        assert numbers.errors == tasks.with_error().count()
    for has_few in (False, True):  # Each way is quicker for one kind of store.
        found = totals._counted("1 = 1", [], dialect_of("default"), has_few=has_few)
        assert [numbers for numbers, *_ in found] == list(every.values())
        for numbers, longest_ready_ms, *_ in found:
            assert_is_since(longest_ready_ms, oldest_to_claim(numbers.group))
    every_group = totals.summary()
    assert by_state(every_group.numbers) == {
        state: sum(getattr(each, state) for each in every.values()) for state in State
    }
    assert every_group.holding == {state: sum(getattr(each, state) > 0 for each in every.values()) for state in State}


def oldest_to_claim(group: str) -> int | None:
    """Since when the oldest task is available that is ready, or to be tried again; None: no task is."""
    now_ms = Task.objects.now_ms()
    tasks = [
        task for state in (State.READY, State.RETRYING) for task in Task.objects.get_queryset().in_state(state, now_ms)
    ]
    since_ms = [task.available_at_ms for task in tasks if task.group == group]
    return min([each for each in since_ms if each <= now_ms], default=None)


def assert_is_since(longest_ready_ms: int | None, at_ms: int | None) -> None:
    if at_ms is None:
        assert longest_ready_ms is None
    else:
        assert longest_ready_ms is not None
        assert 0 <= Task.objects.now_ms() - at_ms - longest_ready_ms < 5_000


def by_state(numbers: Numbers) -> dict[str, int]:
    return {state.value: getattr(numbers, state) for state in State}


def random_operation(chance: random.Random, ids: list[int]) -> Claim | Commit:
    if chance.random() < 0.4:
        return Claim(
            groups=tuple(chance.sample(GROUPS, chance.randint(1, 3))),
            owner=chance.choice((ANN, BOB)),
            limit=chance.randint(1, 3),
            duration_ms=chance.choice((0, 3_600_000)),
        )
    named = chance.sample(ids, min(len(ids), chance.randint(0, 3)))
    half = len(named) // 2
    return Commit(
        owner=chance.choice((ANN, BOB)),
        adds=tuple(random_task(chance, named[half:]) for _ in range(chance.randint(0, 3))),
        updates=tuple(random_change(chance, task_id) for task_id in named[:half]),
        deletes=tuple(named[half:]),
    )


def random_task(chance: random.Random, deleted: list[int]) -> NewTask:
    return NewTask(
        group=chance.choice((*GROUPS, *GROUPS, *ENDS)),
        error=chance.choice(("", "", "broken")),
        timespec_ms=chance.choice((0, 0, -3_600_000)),
        id=chance.choice([0, *deleted]),
    )


def random_change(chance: random.Random, task_id: int) -> Change:
    return Change(
        id=task_id,
        error=chance.choice(("", "broken", None)),
        timespec_ms=chance.choice((0, -3_600_000)),
        release=chance.random() < 0.3,
        group=chance.choice((None, None, *GROUPS, *ENDS)),
    )


def ids() -> list[int]:
    return list(Task.objects.order_by("id").values_list("id", flat=True))


def perform(operation: Claim | Commit) -> None:
    with suppress(CommitRefused):  # Random commits name tasks of others.
        Task.objects.perform(operation)


@pytest.mark.parametrize("seed", range(50))
def test_counts_are_true_after_any_load(transactional_db, seed):
    chance = random.Random(seed)
    for _ in range(20):
        perform(random_operation(chance, ids()))
        if chance.random() < 0.2:
            totals.fold_here()
    assert_counts_are_true()
    totals.fold_here()
    assert not CountDelta.objects.exists()
    assert_counts_are_true()
    assert running_times() == running_times_by_the_trail()
    assert work_done() == work_done_by_the_trail()


def running_times() -> dict[str, Counter[int]]:
    """How often which running time was counted in each group, by bucket, over all minutes."""
    texts: dict[str, list[str]] = {}
    for group, runs in Rate.objects.exclude(runs="").values_list("group", "runs"):
        texts.setdefault(group, []).append(runs)
    return {group: counter_in(" ".join(runs)) for group, runs in texts.items()}


def running_times_by_the_trail() -> dict[str, Counter[int]]:
    found: dict[str, Counter[int]] = {}
    for task in ended_by_their_holders():
        ran_ms = task.ended_at_ms - task.leased_since_ms
        found.setdefault(task.group, Counter())[bucket_of(ran_ms)] += 1
    return found


def work_done() -> Counter[int]:
    """How many tasks each client was done with, over all minutes."""
    done = Counter[int]()
    for client, tasks in WorkDone.objects.values_list("client", "tasks"):
        done[client] += tasks
    return done


def work_done_by_the_trail() -> Counter[int]:
    return Counter(task.owner for task in ended_by_their_holders() if task.ending != Ending.GIVEN_BACK)


def ended_by_their_holders() -> Iterator[EndedTask]:
    """The truth: the leases that the trail says were ended by those who had them."""
    successors = {task.id: task for model in (Task, EndedTask) for task in model.objects.all()}
    for task in EndedTask.objects.filter(leased_since_ms__gt=0, operator="").exclude(ending=Ending.CLAIMED):
        is_renewed = task.successor is not None and successors[task.successor].leased
        if task.owner == task.ended_by and not is_renewed:
            yield task


def run(operations: Sequence[Operation]) -> None:
    """Do all of them in one transaction."""
    dialect = dialect_of("default")
    with transaction.atomic():
        dialect.drive(transact(operations, dialect))


PLANS = {
    "postgresql": ("EXPLAIN", "Index Only Scan using task_listing"),
    "sqlite": ("EXPLAIN QUERY PLAN", "COVERING INDEX task_listing"),
}


def test_a_scope_sees_its_groups_only(transactional_db):
    Task.objects.commit(owner=ANN, adds=[NewTask(group=name) for name in ("pay", "pay/june", "PAY/x", "payroll", "m*")])
    totals.fold_here()
    assert list(group_counts(GroupScope(("pay/*", "payroll")))) == ["pay/june", "payroll"]
    assert group_counts(GroupScope(())) == {}
    assert counts_of("m*").ready == 1
    assert counts_of("p*") == Numbers("p*")


def test_two_that_fold_at_once_count_nothing_twice(transactional_db):
    for _ in range(20):
        Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    start = Barrier(4)

    def fold() -> None:
        start.wait()
        totals.fold_here()
        connection.close()

    threads = [Thread(target=fold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert GroupTotal.objects.get(group="mail").tasks == 20
    assert not CountDelta.objects.exists()


async def everything_is_folded() -> None:
    async with asyncio.timeout(20):
        while not await asyncio.to_thread(is_everything_folded):  # noqa: ASYNC110 - It happens in the database.
            await asyncio.sleep(0.05)


def is_everything_folded() -> bool:
    try:
        return not CountDelta.objects.exists()
    finally:
        connection.close()


def test_the_writer_folds_by_itself_and_counts_right(transactional_db):
    async def work() -> None:
        writer = Writer.start()
        try:
            adds = [Commit(owner=ANN, adds=(NewTask(group=group),)) for group in GROUPS * 30]
            await asyncio.gather(*map(writer.submit, adds))
            claims = [Claim(groups=("mail",), owner=BOB, duration_ms=3_600_000) for _ in range(20)]
            tasks = await asyncio.gather(*map(writer.submit, claims))
            done = [Commit(owner=BOB, deletes=(task.id,)) for [task] in tasks[:10]]
            await asyncio.gather(*map(writer.submit, done))
            await everything_is_folded()
        finally:
            await writer.stop()

    asyncio.run(work())
    assert GroupTotal.objects.get(group="mail").tasks == 20
    assert (counts_of("mail").ready, counts_of("mail").claimed) == (10, 10)
    assert_counts_are_true()


def test_flushed_tables_leave_no_counts(transactional_db):
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    totals.fold_here()
    call_command("flush", interactive=False, verbosity=0)
    assert group_counts() == {}


# ---- Rates


def test_rates_say_what_happened_in_a_minute(clock, transactional_db):
    clock.set(600_000_000)
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail"), NewTask(group="mail", error="broken")])
    totals.fold_here()
    clock.advance(1_000)
    [task] = Task.objects.claim("mail", owner=ANN)
    Task.objects.commit(owner=ANN, deletes=[task.id])
    totals.fold_here()
    rate = Rate.objects.get(group="mail")
    assert (rate.minutes, rate.minute, rate.entered, rate.left) == (1, 10_000, 2, 1)
    assert (rate.failures, rate.claimed, rate.tasks) == (1, 1, 1)
    assert rate.waits == f"{bucket_of(1_000)}:1"


def test_rates_say_how_long_the_holders_of_tasks_had_them(store, clock):
    store.commit(owner=ANN, adds=[NewTask(group="mail"), NewTask(group="reports")])
    [dead] = store.claim("reports", owner=ANN, duration_ms=1_000)
    [held] = store.claim("mail", owner=ANN, duration_ms=10_000)
    clock.advance(5_000)
    renewal = Change(id=held.id, timespec_ms=-10_000)
    [held] = store.commit(owner=ANN, updates=[renewal])
    [again] = store.claim("reports", owner=BOB)
    clock.advance(2_000)
    store.commit(owner=ANN, deletes=[held.id])
    store.commit(owner=BOB, updates=[Change(id=again.id, error="broken", release=True)])
    assert again.origin == dead.origin
    while CountDelta.objects.exists():  # The writer folds, too.
        totals.fold_here()
    assert work_done() == {ANN: 1}
    assert running_times() == {"mail": Counter({bucket_of(7_000): 1}), "reports": Counter({bucket_of(2_000): 1})}


def test_what_a_client_has_done_is_told_by_the_minute_over_all_groups(clock, transactional_db):
    clock.set(600_000_000)
    for minute in range(12):
        for group in ("mail", "reports"):
            Task.objects.commit(owner=ANN, adds=[NewTask(group=group)] * 2)
            held = Task.objects.claim(group, owner=BOB, limit=2)
            Task.objects.commit(owner=BOB, deletes=[task.id for task in held])
            if minute % 2:  # Several foldings add up to the number of a minute.
                totals.fold_here()
        clock.advance(60_000)
    totals.fold_here()
    assert set(WorkDone.objects.values_list("client", "tasks")) == {(BOB, 4)}
    assert done_per_minute() == {BOB: 4.0}
    clock.advance(8 * 60_000)  # Two of the last ten full minutes had work.
    assert done_per_minute() == {BOB: 0.8}
    clock.advance(2 * 60_000)
    assert done_per_minute() == {}


def group_stats(scope: GroupScope = EVERY_GROUP) -> dict[str, Stats]:
    return {group: stats for page in stats_in_pages(scope) for group, stats in page.items()}


def test_stats_come_in_pages_with_each_group_once_and_sorted(transactional_db, monkeypatch):
    monkeypatch.setattr(totals, "PAGE_GROUPS", 2)
    names = ["a", "b", "c/1", "c/2", "d", "é", "z"]
    Task.objects.commit(owner=ANN, adds=[NewTask(group=name) for name in reversed(names)])
    totals.fold_here()
    Task.objects.commit(owner=ANN, adds=[NewTask(group="bb"), NewTask(group="zz"), NewTask(group="a")])
    assert [list(page) for page in stats_in_pages()] == [["a", "b", "bb"], ["c/1", "c/2"], ["d", "z", "zz"], ["é"]]
    assert group_stats()["a"].counts.ready == 2
    assert [list(page) for page in stats_in_pages(GroupScope(("c/*", "a", "zz", "x")))] == [["a", "c/1"], ["c/2", "zz"]]
