"""What the benchmark believes: only what the database confirms."""

import pytest

from lab.benchmarks import CannotMeasure
from lab.benchmarks.load import Load, Verb
from lab.benchmarks.measuring import confirm
from lab.benchmarks.places import Account

pytestmark = pytest.mark.once

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
