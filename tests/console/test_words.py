"""Numbers, sizes, times and durations in words."""

import pytest

from tasks_app.console import words
from taskstore import units
from taskstore.types.scalars import LATEST_MS
from taskstore.units import THIN_SPACE

pytestmark = pytest.mark.once

NOW_MS = 1_795_000_000_000


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (9_960, "10 kB"), (123_456, "123 kB"), (999_600, "1.0 MB"),
     (10_485_760, "10 MB"), (64_000_000_000, "64 GB")],
)  # fmt: skip
def test_it_gives_sizes_a_unit(value, text):
    assert units.size(value) == text


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [(0, "0 ms"), (40, "40 ms"), (3_100, "3.1 s"), (3_000, "3 s"), (10_000, "10 s"), (60_000, "1 min"),
     (249_000, "4 min 9 s"), (7_200_000, "2 h"), (7_205_000, "2 h"), (190_800_000, "2 d 5 h")],
)  # fmt: skip
def test_it_says_durations_in_two_units(value_ms, text):
    assert units.duration(value_ms) == text


@pytest.mark.parametrize(
    ("offset_ms", "text"),
    [(0, "now"), (-999, "now"), (999, "now"), (-38_000, "38 s ago"), (-60_000, "1 min ago"), (7_200_000, "in 2 h"),
     (-2 * 86_400_000, "2 d ago"), (1_234 * 86_400_000, f"in 1{THIN_SPACE}234 d")],
)  # fmt: skip
def test_it_says_how_far_off_a_time_is(offset_ms, text):
    assert units.ago(NOW_MS + offset_ms, NOW_MS) == text


def test_it_says_times_exactly():
    assert words.exact(1_795_000_000_408) == "2026-11-18 11:06:40.408 UTC"
    assert words.clock(1_795_000_000_408) == "11:06:40 UTC"
    assert words.iso(1_795_000_000_408) == "2026-11-18T11:06:40.408Z"


@pytest.mark.parametrize("at_ms", [0, 1, LATEST_MS])
def test_it_says_the_times_at_the_ends_of_the_range(at_ms):
    assert words.exact(at_ms).endswith(f"{at_ms % 1000:03} UTC")


@pytest.mark.parametrize(
    ("per_minute", "text"), [(0, "0"), (0.04, "0"), (0.4, "0.4"), (7.0, "7"), (9.96, "10"), (1_204.4, "1_204")]
)
def test_it_says_rates(per_minute, text):
    assert words.rate(per_minute) == text.replace("_", THIN_SPACE)


@pytest.mark.parametrize(
    ("waiting", "comes", "goes", "text"),
    [
        (0, 5, 9, "—"),
        (7, 0, 0, "—"),
        (60, 10, 30, "3 min"),
        (60, 0, 120, "30 s"),
        (60, 31, 30, "growing"),
        (60, 30, 30, "steady"),
    ],
)
def test_it_forecasts_when_nothing_will_wait(waiting, comes, goes, text):
    assert words.drain(waiting, comes, goes) == text
