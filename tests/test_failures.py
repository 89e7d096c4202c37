"""Errors that are alike, counted together."""

import random
from uuid import UUID

import pytest

from tasks_app.reading import failures
from tasks_app.reading.failures import signature_of
from tasks_app.reading.search.finding import find
from tasks_app.reading.search.grammar import parse, quoted
from tests.behaviour.conftest import Clock
from tests.console.store import add

HOUR_MS = 3_600_000

TEMPLATES = [
    "connection to {host}:{port} refused after {number} ms",
    "no such recipient <{address}>",
    'key "{word}" is missing in /srv/data/{number}.json',
    "order {uuid} is unknown (request {hex})",
    'Traceback (most recent call last):\n  File "/srv/app.py", line {number}, in run\nTimeoutError: {number} s',
    "KeyError: 'order {number} of a customer'",
]


def varied(template: str, chance: random.Random) -> str:
    return template.format(
        host=f"10.0.{chance.randrange(256)}.{chance.randrange(256)}",
        port=chance.randrange(65_536),
        number=chance.randrange(10**6),
        address=f"user{chance.randrange(10**4)}@example.org",
        word=chance.choice(["name", "to", "von"]),
        uuid=UUID(int=chance.getrandbits(128)),
        hex=f"{chance.getrandbits(48):012x}0",
    )


@pytest.mark.once
def test_errors_with_varying_ids_fall_into_the_signatures_that_made_them():
    chance = random.Random(7)
    errors = [varied(template, chance) for template in TEMPLATES for _ in range(2_000)]
    assert {signature_of(error, error[-300:]) for error in errors} == {
        "connection to * refused after * ms",
        "no such recipient <*>",
        "key * is missing in *",
        "order * is unknown (request *)",
        "TimeoutError: * s",
        "KeyError: 'order * of a customer'",
    }


@pytest.mark.once
@pytest.mark.parametrize(
    ("error", "signature"),
    [
        ("timed out", "timed out"),
        ("\n  timed out  \nat 3", "timed out"),
        ("code E42 at 3.5 s", "code E* at * s"),
        ("1 2 3", "*"),
        ("0x7f3a at deadbeef1", "* at *"),
        ("decade feedback", "decade feedback"),
        ("https://example.org/a?b=1 is gone", "* is gone"),
        ("\n", ""),
        ("KeyError: 'user'", "KeyError: 'user'"),
        ('shop.errors.NoSuchKey: "order-7 of 12"', 'shop.errors.NoSuchKey: "order-* of *"'),
        ("'user'", "'user'"),
        ("KeyError: 'a' and 'b'", "KeyError: * and *"),
        ("key 'user' is missing", "key * is missing"),
    ],
)
def test_what_varies_is_a_star(error, signature):
    assert signature_of(error, error) == signature


@pytest.mark.django_db
def test_they_are_counted_by_when_they_failed(clock):
    for age_ms, count in ((8 * 24 * HOUR_MS, 1), (2 * 24 * HOUR_MS, 2), (2 * HOUR_MS, 3), (0, 4)):
        clock.set(NOW_MS - age_ms)
        for number in range(count):
            add(error=f"timed out after {number} s")
    add("reports", error="refused")
    found = failures.failures()
    assert found is not None
    first, second = found.signatures
    assert (first.text, first.last_hour, first.last_day, first.last_week, first.total) == (
        "timed out after * s",
        4,
        7,
        9,
        10,
    )
    assert (first.first_ms, first.last_ms) == (NOW_MS - 8 * 24 * HOUR_MS, NOW_MS)
    assert (second.text, second.total, second.groups) == ("refused", 1, {"reports"})
    assert (found.looked_at, found.is_whole) == (11, True)


NOW_MS = 1_700_000_000_000


@pytest.fixture
def clock(db, monkeypatch) -> Clock:
    return Clock(NOW_MS, monkeypatch)


@pytest.mark.django_db
def test_of_too_many_the_newest_are_looked_at(monkeypatch):
    monkeypatch.setattr(failures, "MOST", 3)
    add(error="old"), add(error="new", count=3)
    found = failures.failures()
    assert found is not None
    assert [(each.text, each.total) for each in found.signatures] == [("new", 3)]
    assert (found.looked_at, found.is_whole) == (3, False)


@pytest.mark.django_db
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_signature_finds_the_tasks_that_made_it(template):
    chance = random.Random(7)
    tasks = [add(error=varied(template, chance))[0] for _ in range(5)]
    add(error="quite another")
    signature = signature_of(tasks[0].error[:300], tasks[0].error[-300:])
    assert find(parse(f"error:{quoted(signature)}")).ids == [task.id for task in tasks[::-1]]
