"""When something is due, also on the days on which the clocks change."""

import itertools
import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim

from tasks_app.schedules.timetable import NotATimetable, Timetable, problems_of

pytestmark = pytest.mark.once

BERLIN = "Europe/Berlin"


def ms(text):
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


def next_times(cron, since, most=3, zone=BERLIN):
    return Timetable(cron=cron, zone=zone).next(ms(since), most)


@pytest.mark.parametrize(
    ("cron", "since", "due"),
    [
        ("30 3 * * *", "2026-11-22T03:30:00+01:00", "2026-11-23T03:30:00+01:00"),
        ("30 3 * * MON-FRI", "2026-11-20T04:00:00+01:00", "2026-11-23T03:30:00+01:00"),
        ("@daily", "2026-11-22T12:00:00+01:00", "2026-11-23T00:00:00+01:00"),
        ("@hourly", "2026-11-22T12:00:00+01:00", "2026-11-22T13:00:00+01:00"),
        ("*/10 * * * * *", "2026-11-22T12:00:01+01:00", "2026-11-22T12:00:10+01:00"),
        ("every 90s", "2026-11-22T11:00:00+00:00", "2026-11-22T11:01:30+00:00"),
        ("58-58/1 * * * *", "2026-11-22T12:58:30+01:00", "2026-11-22T13:58:00+01:00"),
        ("0 0 29 2 *", "2026-01-01T00:00:00+01:00", "2028-02-29T00:00:00+01:00"),
        ("0 3 * * MON-SUN", "2026-11-21T04:00:00+01:00", "2026-11-22T03:00:00+01:00"),
        ("0 3 * * FRI-MON", "2026-11-23T04:00:00+01:00", "2026-11-27T03:00:00+01:00"),
        ("0 3 * * SUN-MON", "2026-11-17T04:00:00+01:00", "2026-11-22T03:00:00+01:00"),
        ("0 3 ? * MON", "2026-11-22T12:00:00+01:00", "2026-11-23T03:00:00+01:00"),
        ("0 0 3 1 * ?", "2026-11-22T12:00:00+01:00", "2026-12-01T03:00:00+01:00"),
        ("0 3 * * FRI#2", "2026-11-22T12:00:00+01:00", "2026-12-11T03:00:00+01:00"),
        ("0 3 * * fril", "2026-11-22T12:00:00+01:00", "2026-11-27T03:00:00+01:00"),
        ("0 3 L * *", "2026-11-22T12:00:00+01:00", "2026-11-30T03:00:00+01:00"),
        ("0 3 L-3 * *", "2026-02-01T12:00:00+01:00", "2026-02-25T03:00:00+01:00"),
        ("0 3 L-30 * *", "2026-02-01T12:00:00+01:00", "2026-03-01T03:00:00+01:00"),
        ("0 3 15W * *", "2026-08-01T12:00:00+02:00", "2026-08-14T03:00:00+02:00"),  # A Saturday.
        ("0 3 15W * *", "2026-11-01T12:00:00+01:00", "2026-11-16T03:00:00+01:00"),  # A Sunday.
        ("0 3 1W * *", "2026-07-31T12:00:00+02:00", "2026-08-03T03:00:00+02:00"),  # Not in the month before.
        ("0 3 31W * *", "2026-04-01T12:00:00+02:00", "2026-05-29T03:00:00+02:00"),  # April has none.
        ("0 3 10,L-1,LW * *", "2026-11-12T12:00:00+01:00", "2026-11-29T03:00:00+01:00"),
    ],
)
def test_the_next_due_time_comes_after_the_moment_that_is_asked_about(cron, since, due):
    assert next_times(cron, since, 1) == [ms(due)]


@pytest.mark.parametrize("cron", ["30 2 * * *", " 30  2 *\t* * "])
def test_what_falls_into_the_hour_that_is_left_out_is_due_at_its_end(cron):
    assert next_times(cron, "2026-03-28T12:00:00+01:00", 2) == [
        ms("2026-03-29T03:00:00+02:00"),
        ms("2026-03-30T02:30:00+02:00"),
    ]


def test_what_falls_into_the_hour_that_comes_twice_is_due_once():
    tomorrow = ms("2026-10-26T02:30:00+01:00")
    assert next_times("30 2 * * *", "2026-10-24T12:00:00+02:00", 2) == [ms("2026-10-25T02:30:00+02:00"), tomorrow]
    # Asked within the hour's second coming, when the time on the wall lies ahead once more.
    assert next_times("30 2 * * *", "2026-10-25T02:10:00+01:00", 1) == [tomorrow]


def test_clocks_that_are_put_back_by_half_an_hour_pass_over_nothing():
    # At 02:00 it is 01:30 once more, and 02:00 again half an hour later.
    zone = "Australia/Lord_Howe"
    found = next_times("*/15 2 * * *", "2026-04-05T00:00:00+11:00", 4, zone)
    assert found == [ms(f"2026-04-05T02:{minute:02}:00+10:30") for minute in (0, 15, 30, 45)]
    assert next_times("45 1 * * *", "2026-04-05T00:00:00+11:00", 1, zone) == [ms("2026-04-05T01:45:00+11:00")]


@pytest.mark.parametrize(
    "zone", ["localtime", "posixrules", "posix/UTC", "right/UTC", "Factory", "Moon/Base", "../UTC"]
)
def test_what_is_no_zone_is_refused(zone):
    assert [field for field, _ in problems_of("@daily", zone)] == ["zone"]


@pytest.mark.parametrize("zone", ["UTC", BERLIN, "America/New_York", "Africa/Casablanca", "Asia/Kathmandu"])
@pytest.mark.parametrize("cron", ["30 2 * * *", "*/20 * * * *", "5,35 1-4 * * SUN", "0 */6 * * *", "every 7min"])
def test_what_has_passed_is_what_was_to_come(zone, cron):
    chance = random.Random(f"{zone} {cron}")
    for day in ("2026-03-08", "2026-03-29", "2026-10-25", "2026-11-01"):
        start = ms(f"{day}T00:00:00+00:00") - chance.randrange(86_400_000)
        times = Timetable(cron=cron, zone=zone)
        coming = times.next(start, 30)
        end = coming[-1] + chance.randrange(1_000)
        assert times.passed(start + 1, end, 1_000) == coming
        assert times.passed(coming[0], end, 5) == coming[-5:]


def changes_of_clocks(zone):
    """Yield when the clocks of a zone change in two years, to within an hour, and how."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    while at.year < 2028:
        step = timedelta(days=1)
        before, after = (each.astimezone(zone).utcoffset() for each in (at, at + step))
        while before != after and step > timedelta(hours=1):
            step = timedelta(hours=1)
            at += step * sum((at + step * hours).astimezone(zone).utcoffset() == before for hours in range(1, 24))
        if before != after:
            yield (at.astimezone(zone).hour, before, after), round(at.timestamp() * 1_000)
        at += step


CRONS = (
    *("0 */2 * * *", "45 */2 * * *", "30 2 * * *", "0 2 * * *", "*/15 * * * *", "*/20 1-4 * * *", "5,35 1-4 * * SUN"),
    *("0 0 * * *", "59 23 * * *", "0 */6 * * *", "15 3 * * SUN#1", "30 */3 * * *", "0 0 1 * *", "10 0,1,2,3,4 * * *"),
    *("*/30 2 * * *", "0 * * * *", "45 1 * * *", "15,45 2-3 * * *", "30 0 * * *", "0 3 L * *"),
)


def due_by_each_minute(cron, minutes, moments):
    """What is due at these minutes, found by what the clocks show at each."""
    shown = [moment.replace(tzinfo=None, fold=0) for moment in moments]
    simulated = CronSim(cron, min(shown) - timedelta(days=1))
    matching = set(itertools.takewhile(lambda time: time < max(shown) + timedelta(days=1), simulated))
    is_fixed = not any(part.startswith("*") for part in cron.split()[:2])
    for minute, moment, time, before in zip(minutes[1:], moments[1:], shown[1:], shown, strict=False):
        is_due = time in matching and not (is_fixed and moment.fold)
        if is_fixed and time - before > timedelta(minutes=1):
            is_due |= any(before < left_out < time for left_out in matching)
        if is_due:
            yield minute


def test_in_every_zone_what_has_passed_is_what_was_to_come_where_clocks_change():
    names = sorted(name for name in available_timezones() if not name.startswith(("posix", "right/", "local", "Fact")))
    kinds = {kind: (name, at) for name in names for kind, at in changes_of_clocks(ZoneInfo(name))}
    assert len(kinds) > 40
    for zone, at in kinds.values():  # One of each kind.
        start, end = at - 86_400_000, at + 86_400_000
        minutes = range(start - 60_000, end + 1, 60_000)
        moments = [datetime.fromtimestamp(minute / 1_000, tz=ZoneInfo(zone)) for minute in minutes]
        for cron in CRONS:
            times = Timetable(cron=cron, zone=zone)
            coming = [*due_by_each_minute(cron, minutes, moments)]
            *found, later = times.next(start - 1, len(coming) + 1)
            assert found == coming, (zone, cron, at)
            assert later > end
            for since in (at - 1_800_000, at - 1, at, at + 1_800_000):
                assert times.next(since, 1) == [due for due in [*coming, later] if due > since][:1], (zone, cron, since)
            assert times.passed(start, end, 300) == coming, (zone, cron, at)
            assert times.passed(start, end, 3) == coming[-3:], (zone, cron, at)


def test_times_are_found_where_clocks_are_put_back_at_midnight():
    """At a minute past midnight it was 23:01 once more, on the day before."""
    times = Timetable(cron="27 * L 1-12/1 SUN#5", zone="America/St_Johns")
    sunday = [ms(f"1989-10-29T{hour:02}:27:00-03:30") for hour in range(24)]
    assert times.next(ms("1989-10-28T12:00:00-02:30"), 24) == sunday
    assert times.passed(ms("1989-10-28T12:00:00-02:30"), sunday[-1], 99) == sunday


def test_a_search_that_finds_nothing_new_ends(monkeypatch):
    monkeypatch.setattr(Timetable, "_times", lambda *_: itertools.repeat(5_000))
    with pytest.raises(NotATimetable):
        Timetable(cron="0 * * * *").after(5_000)


def test_the_newest_of_very_many_are_found_soon():
    times = Timetable(cron="* * * * * *")
    assert times.passed(0, ms("2026-11-29T00:00:00+00:00"), 2) == [
        ms("2026-11-28T23:59:59+00:00"),
        ms("2026-11-29T00:00:00+00:00"),
    ]


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "5 4 3 2",
        "60 * * * *",
        "*/0 * * * *",
        "0 0 30 2 *",
        "* * * * 5L/2",
        "@often",
        "every 0s",
        "every 9",
        "x" * 999,
    ],
)
def test_an_expression_that_makes_no_sense_is_named(cron):
    assert [field for field, _ in problems_of(cron, "UTC")] == ["cron"]
    with pytest.raises(NotATimetable):
        Timetable(cron=cron)


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 0 31 2 *", "must match a date that exists: there is no day 31 in month 2"),
        ("0 0 0 31 feb,apr *", "must match a date that exists: there is no day 31 in month feb,apr"),
        ("0 0 30 2 *", "must match a date that exists: there is no day 30 in month 2"),
        ("0 0 32 2 *", "the day of month 32 is wrong"),
        ("0 0 31 13 *", "the month 13 is wrong"),
        ("0 99 31 2 *", "the hour 99 is wrong"),
    ],
)
def test_a_date_that_no_year_has_is_told_from_a_wrong_field(cron, words):
    [(field, told)] = problems_of(cron, "UTC")
    assert (field, told.endswith(words)) == ("cron", True)


@pytest.mark.parametrize("zone", ["", "Moon/Base", "../etc/passwd", "Europe", "a\0b"])
def test_a_zone_that_nobody_knows_is_named_beside_the_expression(zone):
    assert [field for field, _ in problems_of("nonsense", zone)] == ["zone", "cron"]


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 3 * * *", "At 03:00 every day"),
        ("@weekly", "At 00:00 on Sunday"),
        ("every 30s", "every 30s"),
        ("3,7,11,19,23 1,5,9,13,17 * 1,3,5,7 MON,WED,FRI", "3,7,11,19,23 1,5,9,13,17 * 1,3,5,7 MON,WED,FRI"),
    ],
)
def test_it_says_in_words_what_words_are_good_for(cron, words):
    assert Timetable(cron=cron).in_words == words


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("61 3 * * *", "the minute 61 is wrong"),
        ("0 25 * * *", "the hour 25 is wrong"),
        ("0 22-6 * * *", "the hour 22-6 is wrong"),
        ("0 3 32 * *", "the day of month 32 is wrong"),
        ("0 3 1,32W * *", "the day of month 1,32W is wrong"),
        ("0 3 15W, * *", "the day of month 15W, is wrong"),
        ("0 3 ,15W * *", "the day of month ,15W is wrong"),
        ("0 3 * * SUNMON", "the day of week SUNMON is wrong"),
        ("0 3 * * 1SAT", "the day of week 1SAT is wrong"),
        ("0 3 * foo *", "the month foo is wrong"),
        ("0 3 * * MON#6", "the day of week MON#6 is wrong"),
        ("x 0 3 * * MON", "the second x is wrong"),
        ("0 0 3 * * ? 2026", "it has 7 fields"),
        ("@reboot", "such as @daily"),
    ],
)
def test_the_field_that_is_wrong_is_named(cron, words):
    [(field, said)] = problems_of(cron, "UTC")
    assert (field, said.startswith("must be five cron fields"), words in said) == ("cron", True, True)


@pytest.mark.parametrize("cron", ["0 3 15W * *", "0 3 L-3 * *"])
def test_what_has_no_words_is_shown_as_it_is(cron):
    assert Timetable(cron=cron).in_words == cron
