"""What operations do to the numbers of their groups."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tasks_app import tally
from tasks_app.operations import Change, Claim, Commit, Effect, NewTask, Operation, Refusal, TaskRecord

from .harness import TableInMemory
from .sequences import SEQUENCES, batches, resolved

pytestmark = pytest.mark.once

ANN, BOB = 1, 2
NOW_MS = 1_000_000


class CountedTable(TableInMemory):
    """A table that also adds up the deltas."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: dict[str, Counter[str]] = {}
        self.waits: dict[str, Counter[int]] = {}

    def write(self, effect: Effect) -> list[TaskRecord]:
        for group, delta in tally.deltas_of([effect], NOW_MS).items():
            numbers = self.sums.setdefault(group, Counter())
            for name, value in zip(tally.NUMBERS, delta.numbers, strict=True):
                numbers[name] += value
            if delta.waits:
                self.waits.setdefault(group, Counter()).update(delta.waits)
        return super().write(effect)

    def do(self, operation: Operation, now_ms: int = NOW_MS) -> TaskRecord:
        [answer] = self.run([operation], now_ms)
        assert not isinstance(answer, Refusal)
        [task] = answer
        return task

    def told(self) -> dict[str, tuple[int, int, int]]:
        sums = {group: (of["tasks"], of["leases"], of["failed"]) for group, of in self.sums.items()}
        return {group: numbers for group, numbers in sums.items() if any(numbers)}

    def truth(self) -> dict[str, tuple[int, int, int]]:
        groups: dict[str, list[TaskRecord]] = {}
        for task in self.tasks.values():
            groups.setdefault(task.group, []).append(task)
        return {
            group: (len(tasks), sum(task.leased for task in tasks), sum(task.error != "" for task in tasks))
            for group, tasks in groups.items()
        }


@settings(max_examples=300, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow], database=None)
@given(SEQUENCES)
def test_the_deltas_of_any_sequence_add_up_to_what_is_there(sequence):
    table, now_ms = CountedTable(), 0
    for elapsed_ms, operations in batches(sequence):
        now_ms += elapsed_ms
        table.run([resolved(operation, sorted(table.tasks), table.last_id) for operation in operations], now_ms)
    assert table.told() == table.truth()
    for numbers in table.sums.values():
        assert numbers["entered"] - numbers["left"] == numbers["tasks"]
        assert min(numbers["entered"], numbers["left"], numbers["failures"], numbers["claimed"]) >= 0


@pytest.fixture
def table() -> CountedTable:
    return CountedTable()


def flow(table: CountedTable, group: str) -> tuple[int, int]:
    return table.sums[group]["entered"], table.sums[group]["left"]


def test_claims_renewals_and_edits_neither_enter_nor_leave(table):
    task = table.do(Commit(owner=ANN, adds=(NewTask(group="mail"),)))
    task = table.do(Claim(groups=("mail",), owner=ANN))
    task = table.do(Commit(owner=ANN, updates=(Change(id=task.id, timespec_ms=-60_000, keep_data=True),)))
    task = table.do(Commit(owner=ANN, updates=(Change(id=task.id, data=b"2"),)))
    assert flow(table, "mail") == (1, 0)
    table.run([Commit(owner=ANN, deletes=(task.id,))], NOW_MS)
    assert flow(table, "mail") == (1, 1)


def test_a_moved_task_leaves_one_group_and_enters_the_other(table):
    task = table.do(Commit(owner=ANN, adds=(NewTask(group="mail"),)))
    table.do(Commit(owner=ANN, adds=(NewTask(group="reports", id=task.id),), deletes=(task.id,)))
    assert (flow(table, "mail"), flow(table, "reports")) == ((1, 1), (1, 0))


def test_what_changes_no_number_makes_no_delta(table):
    task = table.do(Commit(owner=ANN, adds=(NewTask(group="mail"),)))
    table.sums.clear()
    table.do(Commit(owner=ANN, updates=(Change(id=task.id, data=b"2"),)))
    assert table.sums == {}


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
    table.do(Commit(owner=BOB, updates=(Change(id=task.id, keep_data=True, keep_error=True, group="reports"),)))
    assert table.sums["reports"]["failures"] == 0


def test_a_claim_tells_how_long_the_task_had_been_available(table):
    table.do(Commit(owner=ANN, adds=(NewTask(group="mail"),)), now_ms=NOW_MS - 100)
    table.do(Claim(groups=("mail",), owner=BOB))
    assert table.waits == {"mail": {tally.bucket_of(100): 1}}


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


@given(st.lists(st.dictionaries(st.integers(0, 90), st.integers(1, 1000)), max_size=5))
def test_texts_of_buckets_add_up(several):
    expected = Counter[int]()
    for buckets in several:
        expected.update(buckets)
    assert tally.buckets_in(" ".join(map(tally.text_of, several))) == expected
