"""The arithmetic of the benchmark."""

from array import array

import pytest

from lab.benchmarks.clients.sample import Sample, Window, summary
from lab.benchmarks.figures import Spread, percentile, spreads

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("percent", "expected"),
    [(1, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)],
)
def test_a_percentile_is_one_of_the_values(percent, expected):
    assert percentile(range(100, 0, -1), percent) == expected


def test_a_single_value_is_every_percentile():
    assert percentile([7.0], 50) == percentile([7.0], 99) == 7.0


def test_there_is_no_percentile_of_nothing():
    assert percentile([], 99) == 0.0


def test_a_spread_has_the_middle_and_the_ends():
    assert Spread.of([30, 10, 20]) == Spread(20, 10, 30)


def test_the_middle_of_two_rounds_lies_between_them():
    assert Spread.of([10, 20]).median == 15


def test_each_figure_has_a_spread_over_the_rounds():
    assert spreads([{"p50_ms": 1, "p99_ms": 9}, {"p50_ms": 3, "p99_ms": 5}]) == {
        "p50_ms": Spread(2, 1, 3),
        "p99_ms": Spread(7, 5, 9),
    }


def test_processes_are_added_up():
    window = Window(begins_s=100, ends_s=102)
    ann = Sample(tasks=[30], claims_ms=array("d", [1, 1, 1]), cpu_s=0.5, memory_mb=20, taken=35)
    bob = Sample(tasks=[10], claims_ms=array("d", [9]), cpu_s=0.1, memory_mb=22, taken=12)
    found = summary([ann, bob], window)
    assert found["per_second"] == 20
    assert found["taken"] == 47
    assert (found["p50_ms"], found["p99_ms"]) == (1, 9)
    assert found["cores"] == pytest.approx(0.3)
    assert found["memory_mb"] == 42


def test_who_runs_dry_is_judged_by_the_time_it_worked():
    window = Window(begins_s=100, ends_s=110)
    sample = Sample(tasks=[30], claims_ms=array("d"), taken=30, last_s=103, has_run_dry=True)
    assert summary([sample], window)["per_second"] == 10


def test_the_parts_of_a_window_are_counted_each_by_itself():
    window = Window(begins_s=100, ends_s=110, parts=5)
    assert [window.part_of(moment_s) for moment_s in (100, 101.9, 102, 109.9)] == [0, 0, 1, 4]
    sample = Sample(tasks=[8, 6, 4, 4, 2], claims_ms=array("d"), taken=24)
    assert summary([sample], window)["parts"] == [4, 3, 2, 2, 1]
