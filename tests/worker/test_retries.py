"""What follows when a function fails, by what it raises and what it declares."""

from datetime import timedelta

import pytest

from taskstore import Discard, Retry, Save, Snooze
from taskstore.worker.handlers import DEFAULT, Retries, Then

pytestmark = pytest.mark.once

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


def pauses(retries, *attempts):
    return [retries.pause_ms(attempt) for attempt in attempts]


@pytest.mark.parametrize(
    ("problem", "then"),
    [
        (ValueError(), Then.RETRY),
        (SystemExit(), Then.RETRY),
        (Retry(MINUTE), Then.RETRY),
        (Save(), Then.FAIL),
        (Discard(), Then.DISCARD),
        (Snooze(MINUTE), Then.SNOOZE),
    ],
)
def test_without_rules_everything_is_retried_unless_the_function_says_otherwise(problem, then):
    assert DEFAULT.after(problem) == then


@pytest.mark.parametrize(
    ("problem", "then"),
    [
        (ConnectionResetError(), Then.RETRY),
        (FileNotFoundError(), Then.FAIL),
        (KeyError(), Then.FAIL),
        (PermissionError(), Then.DISCARD),
        (Retry(MINUTE), Then.RETRY),
    ],
)
def test_rules_are_for_classes_of_exceptions(problem, then):
    rules = Retries.of(retry_on=OSError, fail_on=(FileNotFoundError, IsADirectoryError), discard_on=PermissionError)
    assert rules.after(problem) == then


def test_pauses_double_follow_a_list_or_a_function():
    assert pauses(DEFAULT, 1, 2, 3, 20, 10**9) == [1_000, 2_000, 4_000, 3_600_000, 3_600_000]
    assert pauses(Retries.of(backoff=[SECOND, MINUTE]), 1, 2, 3) == [1_000, 60_000, 60_000]
    assert pauses(Retries.of(backoff=lambda attempt: attempt * MINUTE), 1, 2, 100) == [60_000, 120_000, 3_600_000]
    assert DEFAULT.pause_ms(3, Retry(HOUR * 5)) == DEFAULT.pause_ms(3, Snooze(HOUR * 5)) == 5 * 3_600_000


def test_jitter_takes_a_random_part_of_a_pause():
    found = pauses(Retries.of(backoff=MINUTE, jitter=0.5), *[1] * 1_000)
    assert 30_000 <= min(found) < 33_000
    assert 57_000 < max(found) <= 60_000
    assert len(set(found)) > 500


def test_pauses_may_be_in_seconds():
    assert [Retries.of(backoff=[5, 0.5]).pause_ms(attempt) for attempt in (1, 2, 3)] == [5_000, 500, 500]
    assert Retries.of(backoff=2).pause_ms(2) == 4_000


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"backoff": "soon"}, "backoff must be a timedelta or a number of seconds, a list of them, or a function of"),
        ({"backoff": []}, "backoff must be a timedelta or a number"),
        ({"backoff": [SECOND, "5"]}, "backoff must be a timedelta or a number"),
        ({"backoff": -SECOND}, "backoff: must not be negative"),
        ({"backoff": [5, -1]}, "backoff: must not be negative"),
        ({"backoff": 10**12}, "backoff must be at most 253402300799 s"),
        ({"jitter": 2}, "jitter: must be a number between 0 and 1, not 2"),
        ({"jitter": "x"}, "jitter: must be a number between 0 and 1, not 'x'"),
        ({"retry_on": "OSError"}, "retry_on must be an exception class or a tuple"),
        ({"discard_on": (OSError, int)}, "discard_on must be an exception class or a tuple"),
    ],
)
def test_rules_that_make_no_sense_are_refused(wrong, text):
    with pytest.raises((TypeError, ValueError), match=text):
        Retries.of(**wrong)
