"""What the benchmark believes: only what the database confirms."""

import pytest

from lab.benchmarks import CannotMeasure
from lab.benchmarks.measuring import confirm
from lab.benchmarks.pace import Load, Verb
from lab.benchmarks.places import Account, all_but

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("load", "requests"),
    [
        (Load(clients=1), 2),
        (Load(clients=1, batch=100), 0.02),
        (Load(clients=1, batch=100, verb=Verb.CLAIM), 0.01),
        (Load(clients=1, verb=Verb.REPLACE), 2),
    ],
)
def test_a_cycle_is_two_requests(load, requests):
    assert load.requests_per_task == requests


def test_only_the_processes_of_the_place_count():
    before, after = {1: 5.0, 7: 2.0, 8: 3.0}, {1: 5.5, 7: 2.25, 8: 9.0}
    assert all_but({8}, after) - all_but({8}, before) == 0.75


def test_a_process_that_has_ended_counts_with_what_it_used_meanwhile():
    # Its parent has its time now: 2 s from before, and 0.5 s since.
    before, after = {1: 5.0, 7: 2.0}, {1: 7.5}
    assert all_but(set(), after) - all_but(set(), before) == 0.5


CYCLE, REPLACE = Load(clients=1), Load(clients=1, verb=Verb.REPLACE)


@pytest.mark.parametrize(
    ("load", "before", "after"),
    [
        (CYCLE, Account(100, 7), Account(90, 17)),
        (CYCLE, Account(100, None), Account(90, None)),
        (REPLACE, Account(100, 7), Account(100, 17)),
    ],
)
def test_work_that_the_rows_show_is_believed(load, before, after):
    confirm(load, 10, before, after)


@pytest.mark.parametrize(
    ("load", "before", "after"),
    [
        (CYCLE, Account(100, None), Account(91, None)),
        (CYCLE, Account(100, None), Account(89, None)),
        (CYCLE, Account(100, 7), Account(90, 16)),
        (REPLACE, Account(100, 7), Account(90, 17)),
        (REPLACE, Account(100, 7), Account(100, 7)),
    ],
)
def test_work_that_the_rows_do_not_show_is_not_believed(load, before, after):
    with pytest.raises(CannotMeasure, match="10 tasks"):
        confirm(load, 10, before, after)
