"""What the charts are made of."""

from collections import Counter

import pytest

from tasks_app.core.tally import bucket_of
from tasks_app.models import Rate
from tasks_app.reading.counts import MINUTES, Span, backlogs, levels, percentiles, series_of, series_of_all
from tasks_app.writer import totals
from tests.behaviour.conftest import Clock
from tests.console.store import add, claim, fail, keep_level

NOW = 28_333_340  # A minute.
MINUTE_MS = 60_000


@pytest.fixture
def clock(db, monkeypatch) -> Clock:
    return Clock(NOW * MINUTE_MS + 30_000, monkeypatch)


def happen(minute: int, group: str = "mail", minutes: int = 1, **numbers):
    happened = dict.fromkeys(("entered", "left", "failures", "claimed", "tasks"), 0) | {"waits": "", "runs": ""}
    # Any commit may have folded what it did in this minute.
    Rate.objects.update_or_create(group=group, minutes=minutes, minute=minute, defaults=happened | numbers)


@pytest.mark.parametrize("span", Span)
def test_a_span_ends_with_the_last_minute_that_is_over(clock, span):
    series = series_of_all(span)
    minutes, step = MINUTES[span]
    starts = [start // MINUTE_MS for start in series.starts_ms]
    assert starts[0] <= NOW - minutes < starts[1]
    assert starts[-1] < NOW <= starts[-1] + step
    assert {len(line) for line in series.per_minute.values()} == {len(starts)}


def test_times_are_told_by_percentiles(clock):
    happen(NOW - 1, waits=f"{bucket_of(100)}:98 {bucket_of(5_000)}:1 {bucket_of(60_000)}:1")
    series = series_of("mail", Span.HOUR)
    assert series.waits[-1] is not None
    p50, p95, p99 = series.waits[-1]
    assert 100 <= p50 == p95 <= 150
    assert 5_000 <= p99 <= 7_000
    assert series.runs[-1] is None


@pytest.mark.once
@pytest.mark.parametrize("times_ms", [[0], [1, 2, 3], list(range(1_000)), [10**9]])
def test_no_percentile_is_too_short(times_ms):
    histogram = Counter[int]()
    for ms in times_ms:
        histogram[bucket_of(ms)] += 1
    for percent, found in zip((50, 95, 99), percentiles(histogram) or (), strict=True):
        within = sum(ms <= found for ms in times_ms)
        assert within >= len(times_ms) * percent / 100


def test_what_happens_in_the_store_comes_into_the_charts(clock):
    add(count=3)
    clock.advance(2_000)
    fail(claim()[0])
    totals.fold_here()
    clock.advance(MINUTE_MS)
    series = series_of("mail", Span.HOUR)
    assert (series.per_minute["entered"][-1], series.per_minute["failures"][-1], series.backlog[-1]) == (3, 1, 3)
    assert series.waits[-1] is not None
    assert 2_000 <= series.waits[-1][0] <= 4_000


def test_backlogs_of_groups_together(clock):
    happen(NOW - 2, entered=5)
    happen(NOW - 2, "reports", entered=1, left=4)
    happen(NOW - 2, "other", entered=50)
    happen(NOW, entered=3)
    add("mail", count=2)  # Not folded yet.
    assert backlogs([(["mail", "reports"], 20), (["reports"], 7), ([], 0)], 3) == [[13, 15, 15], [10, 7, 7], []]
    assert backlogs([], 3) == []


def test_levels_stay_where_nobody_kept_one(clock):
    keep_level(NOW - 5, ready=5, workers=1)
    keep_level(NOW - 3, ready=3)
    keep_level(NOW, ready=100)  # Under way.
    assert levels(6)["ready"] == [5, 5, 5, 3, 3, 3]
    assert levels(6)["workers"] == [1, 1, 1, 0, 0, 0]
    keep_level(NOW - 60, ready=60)
    assert levels(6)["ready"] == [60, 5, 5, 3, 3, 3]
