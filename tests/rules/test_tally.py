"""What operations do to the numbers of their groups."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tasks_app.core import tally
from tasks_app.core.operations import Claim, Commit, Effect, Operation, Operator, TaskRecord
from tasks_app.core.rules import World, decide
from taskstore.types.tasks import Change, NewTask, Refusal, Standing

from ..examples import examples
from .harness import TableInMemory
from .model import NaiveStore
from .sequences import SEQUENCES, START_MS, batches, resolved

pytestmark = pytest.mark.once

ANN, BOB = 1, 2
NOW_MS = 1_000_000


class CountedTable(TableInMemory):
    """A table that also adds up the deltas."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: dict[str, Counter[str]] = {}
        self.waits: dict[str, Counter[int]] = {}
        self.runs: dict[str, Counter[int]] = {}
        self.done = Counter[int]()
        self.work = Counter[str]()

    def write(self, effect: Effect, now_ms: int) -> list[TaskRecord]:
        deltas = tally.deltas_of([effect], now_ms)
        self.work.update(tally.work_in(deltas.values(), commits=1)._asdict())
        for group, delta in deltas.items():
            numbers = self.sums.setdefault(group, Counter())
            for name, value in zip(tally.NUMBERS, delta.numbers, strict=True):
                numbers[name] += value
            if delta.waits:
                self.waits.setdefault(group, Counter()).update(delta.waits)
            if delta.runs:
                self.runs.setdefault(group, Counter()).update(delta.runs)
            self.done.update(delta.done)
        return super().write(effect, now_ms)

    def do(self, operation: Operation, now_ms: int = NOW_MS) -> TaskRecord:
        [(_, answer)] = self.run([operation], now_ms)
        assert not isinstance(answer, Refusal)
        [task] = answer
        return task

    def told(self) -> dict[str, list[int]]:
        sums = {group: [of[name] for name in tally.COUNTS] for group, of in self.sums.items()}
        return {group: numbers for group, numbers in sums.items() if any(numbers)}

    def truth(self) -> dict[str, list[int]]:
        groups: dict[str, list[TaskRecord]] = {}
        for task in self.tasks.values():
            groups.setdefault(task.group, []).append(task)
        return {
            group: [
                len(tasks),
                sum(task.leased for task in tasks),
                sum(task.error != "" for task in tasks),
                *(sum(task.standing == each for task in tasks if not task.leased) for each in Standing if each),
            ]
            for group, tasks in groups.items()
        }


@settings(
    max_examples=examples(100), phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow], database=None
)
@given(SEQUENCES)
def test_the_deltas_of_any_sequence_add_up_to_what_is_there(sequence):
    table, now_ms = CountedTable(), START_MS
    for elapsed_ms, operations in batches(sequence):
        now_ms += elapsed_ms
        table.run([resolved(operation, sorted(table.tasks), table.last_id) for operation in operations], now_ms)
    assert table.told() == table.truth()
    for numbers in table.sums.values():
        assert numbers["entered"] - numbers["left"] == numbers["tasks"]
        assert min(numbers["entered"], numbers["left"], numbers["failures"], numbers["claimed"]) >= 0


@settings(
    max_examples=examples(100), phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow], database=None
)
@given(SEQUENCES)
def test_the_running_times_and_what_is_done_of_any_sequence_are_those_of_the_model(sequence):
    table, model = CountedTable(), NaiveStore(START_MS)
    for elapsed_ms, operations in batches(sequence):
        model.now_ms += elapsed_ms
        living = sorted(model.tasks)
        batch = [resolved(operation, living, model.last_id) for operation in operations]
        for operation, _ in table.run(batch, model.now_ms):
            model.perform(operation, claimable=living)
    expected: dict[str, Counter[int]] = {}
    for group, ms in model.runs:
        expected.setdefault(group, Counter())[tally.bucket_of(ms)] += 1
    assert table.runs == expected
    assert table.done == model.done


@pytest.fixture
def table() -> CountedTable:
    return CountedTable()


def flow(table: CountedTable, group: str) -> tuple[int, int]:
    return table.sums[group]["entered"], table.sums[group]["left"]


def test_a_failure_is_an_error_that_a_task_gets(table):
    task = table.do(Commit(owner=ANN, adds=(NewTask(group="mail"),)))
    task = table.do(Commit(owner=ANN, updates=(Change(id=task.id, error="broken"),)))
    assert table.sums["mail"]["failures"] == 1
    table.do(Claim(groups=("mail",), owner=ANN))
    assert table.sums["mail"]["failures"] == 1


def test_the_same_error_from_the_next_worker_is_another_failure(table):
    table.do(Commit(owner=ANN, adds=(NewTask(group="mail", error="broken"),)))
    task = table.do(Claim(groups=("mail",), owner=BOB))
    task = table.do(Commit(owner=BOB, updates=(Change(id=task.id, error="broken", release=True),)))
    assert table.sums["mail"]["failures"] == 2
    table.do(Commit(owner=BOB, updates=(Change(id=task.id, group="reports"),)))
    assert table.sums["reports"]["failures"] == 0


def test_an_error_that_somebody_writes_over_many_tasks_is_no_failure(table):
    task = table.do(Commit(owner=ANN, adds=(NewTask(group="mail"),)))
    operator = Operator(name="ada", bulk=1)
    table.do(Commit(owner=0, updates=(Change(id=task.id, error="known"),), operator=operator))
    table.do(Commit(owner=0, adds=(NewTask(group="mail", error="back again"),), operator=operator))
    assert table.sums["mail"]["failures"] == 0


def test_a_cancelled_job_has_not_failed(table):
    task = table.do(Commit(owner=ANN, adds=(NewTask(group="jobs/mail"),)))
    change = Change(id=task.id, group="jobs/mail/cancelled", error="cancelled by ada")
    table.do(Commit(owner=0, updates=(change,), operator=Operator(name="ada")))
    assert table.sums["jobs/mail/cancelled"]["failures"] == 0


# ---- Running times: a lease of two minutes, a minute old, on a task that lay there for another


@pytest.fixture
def held(table: CountedTable) -> TaskRecord:
    table.do(Commit(owner=ANN, adds=(NewTask(group="mail"),)), now_ms=NOW_MS - 120_000)
    return table.do(Claim(groups=("mail",), owner=BOB, duration_ms=120_000), now_ms=NOW_MS - 60_000)


A_MINUTE = {"mail": {tally.bucket_of(60_000): 1}}
ENDS = {
    "deleting it": lambda task: Commit(owner=BOB, deletes=(task.id,)),
    "changing it": lambda task: Commit(owner=BOB, updates=(Change(id=task.id, data=b"done"),)),
    "giving it back": lambda task: Commit(owner=BOB, updates=(Change(id=task.id, release=True),)),
    "giving it back for later": lambda task: Commit(
        owner=BOB, updates=(Change(id=task.id, timespec_ms=-60_000, release=True),)
    ),
    "an error": lambda task: Commit(owner=BOB, updates=(Change(id=task.id, error="broken", release=True),)),
    "moving it": lambda task: Commit(owner=BOB, adds=(NewTask(group="reports", id=task.id),), deletes=(task.id,)),
    "moving it by an update": lambda task: Commit(owner=BOB, updates=(Change(id=task.id, group="reports"),)),
}


def test_a_run_is_told_where_the_numbers_of_its_batch_cancel_each_other(table, held):
    other = table.do(Commit(owner=ANN, adds=(NewTask(group="mail"),)))
    effects = decide(
        [
            Commit(owner=BOB, updates=(Change(id=held.id, data=b"done"),)),
            Commit(owner=ANN, updates=(Change(id=other.id, timespec_ms=-60_000),)),
        ],
        World(NOW_MS, table.tasks),
    )
    deltas = tally.deltas_of([effect for effect in effects if isinstance(effect, Effect)], NOW_MS)
    assert set(deltas["mail"].numbers) == {0}
    assert (deltas["mail"].runs, deltas["mail"].done) == (A_MINUTE["mail"], {BOB: 1})


@given(st.integers(0, 10**13))
def test_a_bucket_holds_the_times_from_its_least_to_the_next_one(ms):
    bucket = tally.bucket_of(ms)
    assert tally.least_of(bucket) <= ms < tally.least_of(bucket + 1)


@given(st.integers(4, 10**13))
def test_a_bucket_is_at_most_half_as_wide_as_its_times_are_long(ms):
    least, beyond = tally.least_of(tally.bucket_of(ms)), tally.least_of(tally.bucket_of(ms) + 1)
    assert beyond - least <= least / 2


def test_a_time_before_now_by_another_clock_counts_as_none():
    assert tally.bucket_of(-5) == 0


@given(st.lists(st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.integers(1, 1000)), max_size=5))
def test_texts_of_counters_add_up(several):
    expected = Counter[int]()
    for counter in several:
        expected.update(counter)
    assert tally.counter_in(" ".join(map(tally.text_of, several))) == expected
