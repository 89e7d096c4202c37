"""What an operator is told to look at, and what is no alarm."""

import pytest

from tasks_app.alerts import attention
from tasks_app.alerts.attention import Kind, Notice
from tasks_app.control import pauses
from tasks_app.core.actors import Actor
from tasks_app.models import BulkOperation, Client, PausedGroup, Rate
from tasks_app.reading import clients
from tests.behaviour.conftest import Clock
from tests.console.store import add, claim

NOW = 28_333_340  # A minute.
MINUTE_MS = 60_000


@pytest.fixture
def clock(db, monkeypatch) -> Clock:
    return Clock(NOW * MINUTE_MS, monkeypatch)


def notices():
    return attention.notices(clients.seen())


def happen(minute: int, group: str = "mail", **numbers):
    happened = dict.fromkeys(("entered", "left", "failures", "claimed", "tasks"), 0) | {"waits": "", "runs": ""}
    Rate.objects.create(group=group, minutes=1, minute=minute, **happened | numbers)


def add_long_ago(clock, minutes=11, **fields):
    clock.advance(-minutes * MINUTE_MS)
    add(**fields)
    clock.advance(minutes * MINUTE_MS)


def hear(age_ms, clock, **said):
    clock.advance(-age_ms)
    clients.hear(Client(id=7, info="{}", **{"name": "Kim", "groups": [], **said}))
    clock.advance(age_ms)


def test_all_is_well_in_an_empty_store(clock):
    assert notices() == []


@pytest.mark.parametrize("error", ["", "it failed once"])
def test_a_group_stands_still_when_claims_have_ended(clock, error):
    add_long_ago(clock, count=2, error=error)
    happen(NOW - 12, claimed=1)
    happen(NOW - 300, claimed=1)
    [notice] = notices()
    assert notice == Notice(kind=Kind.STALLED, name="mail", tasks=2, at_ms=(NOW - 12) * MINUTE_MS)


def test_a_group_stands_still_when_its_workers_claim_nothing(clock):
    add_long_ago(clock)
    hear(0, clock, groups=["mail"])
    assert notices() == [Notice(kind=Kind.STALLED, name="mail", tasks=1)]


@pytest.mark.parametrize(
    ("last_claim", "age", "is_paused"),
    [
        (None, 11, False),  # Nobody works on it: config, outputs, dead letters.
        (NOW - 1_500, 11, False),  # Nor has anybody for more than a day.
        (NOW - 5, 11, False),
        (NOW - 12, 9, False),
        (NOW - 12, 11, True),
    ],
)
def test_other_groups_are_no_alarm(clock, last_claim, age, is_paused):
    add_long_ago(clock, age)
    if last_claim is not None:
        happen(last_claim, claimed=1)
    if is_paused:
        pauses.pause("mail", Actor("Ann"))
    assert not [notice for notice in notices() if notice.kind is Kind.STALLED]


def test_a_worker_is_lost_with_what_it_holds(clock):
    clock.advance(-150_000)
    add(count=3)
    claim(count=2, owner=7, duration_ms=600_000)
    clock.advance(150_000)
    hear(130_000, clock)
    assert notices() == [Notice(kind=Kind.LOST, name="Kim", tasks=2, at_ms=clock.now_ms - 130_000)]


def test_a_worker_that_holds_nothing_has_ended(clock):
    hear(130_000, clock)
    assert notices() == []


@pytest.mark.parametrize(
    ("recent", "before", "is_told"), [(11, 0, True), (10, 0, False), (60, 1_430, True), (30, 1_430, False)]
)
def test_errors_pile_up_when_there_are_far_more_than_usual(clock, recent, before, is_told):
    happen(NOW - 3, failures=recent)
    if before:
        happen(NOW - 600, failures=before)
    found = [notice.tasks for notice in notices() if notice.kind is Kind.FAILING]
    assert found == ([recent] if is_told else [])


@pytest.mark.parametrize(("minutes", "is_told"), [(61, True), (59, False)])
def test_a_long_pause_is_told(clock, minutes, is_told):
    add()
    pauses.pause("mail", Actor("Ann"))
    paused = PausedGroup.objects.get()
    clock.set(paused.at_ms + minutes * MINUTE_MS)
    found = notices()
    assert [(notice.kind, notice.name, notice.tasks) for notice in found] == (
        [(Kind.PAUSED, "mail", 1)] if is_told else []
    )


def test_what_is_done_to_many_tasks_is_told_while_it_goes_on(clock):
    BulkOperation.objects.create(
        pk=3, verb="purge", in_words="all failed tasks", expected=70, done=10, skipped=2, began_at_ms=0
    )
    BulkOperation.objects.create(pk=4, verb="move", expected=70, began_at_ms=0, state="done")
    assert notices() == [
        Notice(kind=Kind.RUNNING, name="purge of all failed tasks", tasks=12, operation=3, expected=70)
    ]
