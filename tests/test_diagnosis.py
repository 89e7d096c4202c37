"""The diagnoses of groups, workers and tasks, and which of them are alarms."""

import time
from datetime import UTC, datetime
from functools import partial
from itertools import combinations
from typing import Any

import psycopg
import pytest
from django.db import connection

from tasks_app.alerts import causes, diagnosis
from tasks_app.alerts.kinds import Kind
from tasks_app.control import limits, pauses
from tasks_app.core.actors import Actor
from tasks_app.models import BulkOperation, Client, PausedGroup, Rate, Task
from tasks_app.reading import clients
from tasks_app.reading.counts import stats_of
from tasks_app.writer import totals
from tasks_app.writer.connection import parameters_of
from tasks_app.writer.totals import Numbers
from taskstore.types.batches import Batch
from taskstore.types.job_record import Attempt, How, JobError, JobOptions, JobRecord
from taskstore.types.limits import GroupLimit, LimitsRequest, LimitUse
from taskstore.types.tasks import ATTEMPTS, Change, NewTask, State
from tests.behaviour.conftest import Clock
from tests.behaviour.databases import only_postgresql
from tests.console.store import add, claim
from tests.people import make_user, signed_in

NOW = 28_333_340  # A minute.
MINUTE_MS = 60_000
LATER_MS = (NOW + 10) * MINUTE_MS


@pytest.fixture
def clock(db, monkeypatch) -> Clock:
    return Clock(NOW * MINUTE_MS, monkeypatch)


def of(group: str = "mail"):
    return diagnosis.of_groups(stats_of([group]), clients.seen())[group]


def troubles() -> list[str]:
    return [f"{name}: {found.text}" for name, found in diagnosis.troubled(diagnosis.of_worst(clients.seen())).items()]


def elsewhere() -> list[str]:
    return [f"{found.of.words}: {found.text}" for found in diagnosis.elsewhere(clients.seen())]


def happen(minute: int, group: str = "mail", **numbers):
    happened = dict.fromkeys(("entered", "left", "failures", "claimed", "tasks"), 0) | {"waits": "", "runs": ""}
    Rate.objects.create(group=group, minutes=1, minute=minute, **happened | numbers)


def add_long_ago(clock, minutes=11, **fields):
    clock.advance(-minutes * MINUTE_MS)
    add(**fields)
    clock.advance(minutes * MINUTE_MS)


def hear(age_ms, clock, id=7, **said):
    clock.advance(-age_ms)
    clients.hear(Client(id=id, info="{}", **{"name": f"Kim-{id}", "groups": [], **said}))
    clock.advance(age_ms)


def test_all_is_well_in_an_empty_store(clock):
    assert (troubles(), elsewhere()) == ([], [])


@pytest.mark.parametrize(("error", "waiting"), [("", "2 ready"), ("it failed once", "2 retrying")])
def test_a_group_stands_still_when_claims_have_ended(clock, error, waiting):
    add_long_ago(clock, 30, count=2, error=error)
    happen(NOW - 18, claimed=1)
    happen(NOW - 300, claimed=1)
    assert troubles() == [f"mail: Stalled for 17 min: {waiting}, no worker claims there: start one."]
    assert of().is_alarm


def test_since_when_a_group_stands_still(clock):
    """Since its oldest task waits, or since the last claim, whatever came later."""
    add_long_ago(clock, 12)
    happen(NOW - 300, claimed=1)
    assert of().since == "for 12 min"


@pytest.mark.parametrize(
    ("workers", "why", "to_do"),
    [
        ({7: 0}, "its only live worker Kim-7 claims nothing", "See the workers"),
        ({7: 0, 8: 20_000, 9: 150_000}, "its 2 live workers claim nothing", "See the workers"),
        ({7: 150_000}, "its only worker Kim-7 is lost", "See the workers"),
        ({7: 150_000, 8: 160_000}, "all its 2 workers are lost", "See the workers"),
    ],
)
def test_why_a_group_stands_still(clock, workers, why, to_do):
    add_long_ago(clock)
    happen(NOW - 20, claimed=1)
    for id, age_ms in sorted(workers.items(), key=lambda each: -each[1]):
        hear(age_ms, clock, id, groups=["mail"])
    assert of().text == f"Stalled for 11 min: 1 ready, {why}."
    assert of().advice.words == to_do


def test_what_a_lost_worker_holds_is_given_back(clock):
    """The lease of 12 tasks lasts for an hour more; nobody else claims there."""
    add_long_ago(clock, 30, count=14)
    clock.advance(-20 * MINUTE_MS)
    claim(count=12, owner=7, duration_ms=80 * MINUTE_MS)
    hear(0, clock, groups=["mail"])
    clock.advance(20 * MINUTE_MS)
    happen(NOW - 20, claimed=12)
    assert of().text == "Stalled for 19 min: 2 ready, Kim-7 is lost and holds 12 tasks."
    assert (of().advice.words, of().advice.query["q"]) == ("Give back 12 leases", 'group:"mail" owner:7 state:claimed')
    assert elsewhere() == ["Kim-7: Lost for 20 min: it holds 12 tasks until the leases end."]
    [task] = Task.objects.claim("mail", owner=8, duration_ms=60_000, limit=1)
    add(group="other")
    [held] = Task.objects.get_queryset().filter(owner=7)[:1]
    assert told(held, clock) == "Worker lost for 20 min: Kim-7 holds the task. The lease ends"
    assert told(task, clock) is None


@pytest.mark.parametrize("lost", [12, 5])
def test_who_holds_the_places_of_a_limit_is_told_before_the_limit(clock, lost):
    """To give back what a lost worker holds helps; to look at the limit does not."""
    limits.put(LimitsRequest("mail", running=12))
    add_long_ago(clock, 30, count=20)
    claim(count=lost, owner=7, duration_ms=80 * MINUTE_MS), claim(count=20, owner=8, duration_ms=80 * MINUTE_MS)
    hear(150_000, clock, groups=["mail"]), hear(0, clock, 8, groups=["mail"])
    happen(NOW - 1, claimed=12)
    held = "all" if lost == 12 else "5"
    assert of().text == f"Worker lost for 2 min: Kim-7 holds {lost} tasks until the leases end, 12 of 12 running."
    clock.advance(20 * MINUTE_MS)
    hear(150_000, clock, groups=["mail"]), hear(0, clock, 8, groups=["mail"])
    assert of().text == (f"Stalled for 20 min: 8 ready, 12 of 12 running, {held} of them by Kim-7, which is lost.")
    assert of().advice.words == f"Give back {lost} leases"


@pytest.mark.parametrize(
    ("group", "is_alarm"),
    [("jobs/nightly", True), ("commands/default/open", True), ("commands/default/new_stashed", False), ("member", True),
     ("config", False), ("planned", False)],
)  # fmt: skip
def test_what_waits_for_a_worker_by_what_it_is_is_told_although_nobody_has_ever_claimed_there(clock, group, is_alarm):
    clock.advance(-39 * MINUTE_MS)
    Task.objects.create_batch(owner=1, adds=[NewTask(group="member")], then=NewTask(group="planned"))
    if group != "member":
        add(group, 40)
    clock.advance(39 * MINUTE_MS)
    found = of(group)
    ready = 1 if group == "member" else 40
    if is_alarm:
        assert found.text == f"Stalled for 39 min: {ready} ready, no worker claims there: start one."
    else:
        assert found.text == "Unclaimed for 39 min: 40 ready, no worker claims there."
    assert found.is_alarm == is_alarm


def test_what_failed_is_told_of_the_group_where_it_failed(clock):
    """A poison in four groups, whose tasks have all become dead letters of one."""
    for name in ("mail", "sms"):
        for task in add(name, 20):
            [claimed] = Task.objects.claim(name, owner=7, duration_ms=60_000, limit=1)
            Task.objects.commit(owner=7, updates=[Change(id=claimed.id, group="failed", error=f"E {task.id}")])
    totals.fold_here()
    assert [text for text in troubles() if "failed" in text] == []
    assert of("failed").text == "Failed: 40 tasks failed for good."
    assert elsewhere() == [
        "mail: Failing: 20 errors in 10 min, usually none.",
        "sms: Failing: 20 errors in 10 min, usually none.",
    ]
    [mail, _] = diagnosis.elsewhere(clients.seen())
    assert mail.is_alarm
    assert mail.advice
    assert mail.advice.query == {"q": 'failed_from:"mail"'}
    page = signed_in(make_user("vera", "viewer")).get("/console/group", {"name": "mail"}).content.decode()
    assert "20 errors in 10 min, usually none." in page
    assert "failed_from%3A%22mail%22" in page
    add("mail")
    assert troubles() == ["mail: Failing: 20 errors in 10 min, usually none."]


# ---- The table of causes, without a database


def worker(id, age_ms):
    return clients.Seen(client=Client(id=id, name=f"Kim-{id}", info="{}"), groups=["mail"], age_ms=age_ms)


LOST, LIVE = worker(7, 200_000), worker(8, 0)
FULL = GroupLimit(name="mail", running=3, use=(LimitUse(leased=3, why="3 of 3 running"),), why="3 of 3 running")
NUMBERS = Numbers("mail", tasks=20, leases=3, errors=8, failed=4, claimed=3, later=6, put_off=0)
# For each cause, in the order of the table, what makes it apply.
FACTS: dict[causes.Cause, dict[str, Any]] = {
    causes.paused: {"pause": PausedGroup(group="mail", by="Ann", at=datetime.now(UTC))},
    causes.stalled: {"waits_ms": 20 * MINUTE_MS, "claimed_ms": 20 * MINUTE_MS},
    causes.held_by_lost: {"held": [(LOST, 3)]},
    causes.without_function: {"lacking": ("shop.f", 0, 3)},
    causes.failing: {"failures": (40, 0)},
    causes.growing: {"flow": [(400, 100)] * 2, "claimed_ms": 0, "waits_ms": 2 * MINUTE_MS},
    causes.limited: {"limit": FULL, "counts": NUMBERS},
    causes.working: {"out_per_minute": 3.0},
    causes.unclaimed: {"waits_ms": 20 * MINUTE_MS, "claimed_ms": None, "counts": NUMBERS._replace(claimed=0, leases=0)},
    causes.waiting: {"counts": NUMBERS._replace(claimed=0, leases=0)},
    causes.has_failed: {"counts": NUMBERS._replace(claimed=0, leases=0, later=0, tasks=4)},
    causes.idle: {"counts": Numbers("mail")},
}
REASONS = {
    causes.lost_hold_all: {"held": [(LOST, 3)]},
    causes.limit_is_full: {"limit": FULL},
    causes.live_are_busy: {"live": [LIVE]},
    causes.all_are_lost: {"lost": [LOST]},
    causes.no_worker: {},
}


def first(table, facts):
    return next(cause for cause in table if cause(facts))


@pytest.mark.parametrize(("table", "known"), [(causes.CAUSES, FACTS), (causes.REASONS, REASONS)])
def test_of_two_causes_at_once_the_first_of_the_table_is_told(table, known):
    """What a cause says of itself is laid over what the other one says: that it is worse must not depend on both."""
    assert list(known) == list(table)
    base = {"counts": NUMBERS, "claimed_ms": None}
    for cause, changes in known.items():
        assert first(table, causes.Facts(**base | changes)) is cause
    for worse, better in combinations(known, 2):
        assert first(table, causes.Facts(**base | known[better] | known[worse])) is worse, f"{worse} and {better}"


def test_the_causes_of_a_task_are_told_in_their_order():
    task = Task(id=3, group="mail", available_at_ms=5_000, owner=7, labels={}, leased_since_ms=1, standing=0)
    paused = causes.Facts(counts=NUMBERS, **FACTS[causes.paused])
    of = partial(causes.TaskFacts, task=task, now_ms=9_000)
    known = {
        causes.holder_is_lost: {"state": State.CLAIMED, "holder": LOST},
        causes.group_holds_it_back: {"state": State.READY, "group": paused},
        causes.nobody_has_its_function: {"state": State.SCHEDULED, "left": ("shop.f", 0)},
        causes.is_tried_again: {"state": State.RETRYING},
        causes.is_in_line: {"state": State.READY, "group": causes.Facts(counts=NUMBERS)},
    }
    assert list(known) == list(causes.TASK_CAUSES)
    for cause, changes in known.items():
        assert first(causes.TASK_CAUSES, of(**changes)) is cause
    for worse, better in combinations(known, 2):
        assert first(causes.TASK_CAUSES, of(**known[better] | known[worse])) is worse, f"{worse} and {better}"


MEMBERS = {"mail": {State.READY: 3}}
# For each cause of a batch, in the order of the table, what is true of it then.
BATCHES: dict[causes.BatchCause, dict[str, Any]] = {
    causes.was_deleted: {"deleted": True},
    causes.has_succeeded: {"state": "succeeded"},
    causes.batch_has_failed: {"state": "failed"},
    causes.lacks_rights: {"lost_rights": True},
    causes.can_not_add: {"problem": "the store is full"},
    causes.only_failed_are_left: {"failed": 2, "open": 0, "children": 0},
    causes.is_held: {"state": "held"},
    causes.waits_for_members: {"open": 3},
    causes.waits_for_batches: {"children": 2},
    causes.is_empty: {},
}


def batch_of(**changes):
    known: dict[str, Any] = {
        "id": 7,
        "name": "",
        "state": "open",
        "total": 5,
        "open": 0,
        "failed": 0,
        "ended": 2,
        "parent": None,
    }
    return Batch(**known | {"created_at_ms": 0, "closed_at_ms": None} | changes)


def test_of_two_causes_of_a_batch_at_once_the_first_of_the_table_is_told():
    assert list(BATCHES) == list(causes.BATCH_CAUSES)
    of = partial(causes.BatchFacts, members=MEMBERS, groups={"mail": causes.Facts(counts=NUMBERS)})
    for cause, changes in BATCHES.items():
        assert first(causes.BATCH_CAUSES, of(batch=batch_of(**changes))) is cause
    for worse, better in combinations(BATCHES, 2):
        both = of(batch=batch_of(**BATCHES[better] | BATCHES[worse]))
        assert first(causes.BATCH_CAUSES, both) is worse, f"{worse} and {better}"


def test_however_many_groups_stand_still_the_database_is_asked_as_often(clock, django_assert_max_num_queries):
    for number in range(30):
        add_long_ago(clock, group=f"mail-{number}")
    hear(0, clock, groups=[f"mail-{number}" for number in range(30)])
    with django_assert_max_num_queries(20):
        assert len(troubles()) == 30


def test_a_live_worker_may_be_busy(clock):
    add_long_ago(clock)
    add(group="video")
    claim("video", owner=7)
    hear(0, clock, groups=["mail", "video"])
    assert of().why == "1 ready, its only live worker Kim-7 holds 1 task."


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
    assert of().kind is not Kind.STALLED


def test_a_group_whose_work_is_all_in_lost_hands(clock):
    clock.advance(-150_000)
    add(count=3), add("reports", count=3)
    claim(count=2, owner=7, duration_ms=600_000), claim("reports", owner=7, duration_ms=600_000)
    clock.advance(150_000)
    claim("reports", owner=8)
    hear(130_000, clock)
    assert of().text == "Worker lost for 2 min: Kim-7 holds 2 tasks until the leases end."
    assert of("reports").kind is Kind.WORKING
    assert elsewhere() == ["Kim-7: Lost for 2 min: it holds 3 tasks until the leases end."]


def test_many_lost_workers_are_told_at_once(clock):
    add(count=6)
    for id in (7, 8, 9):
        claim(count=2, owner=id, duration_ms=600_000)
    for id in (7, 8, 9):
        hear(130_000, clock, id)
    assert elsewhere() == ["3 workers: Lost: they hold 6 tasks until the leases end."]
    assert sum(found.count for found in diagnosis.elsewhere(clients.seen())) == 3


def test_a_worker_that_holds_nothing_has_ended(clock):
    hear(130_000, clock)
    assert elsewhere() == []


@pytest.mark.parametrize(
    ("recent", "before", "told"),
    [(11, 0, "11 errors in 10 min, usually none."), (10, 0, ""), (60, 1_430, "60 errors in 10 min, usually 10."),
     (30, 1_430, "")],
)  # fmt: skip
def test_errors_pile_up_when_there_are_far_more_than_usual(clock, recent, before, told):
    add()
    happen(NOW - 3, failures=recent)
    if before:
        happen(NOW - 600, failures=before)
    assert of().why == told
    assert (of().kind is Kind.FAILING) == bool(told)


@pytest.mark.parametrize(
    ("entered", "left", "grows"),
    [
        ((80, 80), (20, 20), True),
        ((80, 20), (20, 80), False),  # It has stopped.
        ((20, 80), (80, 20), False),  # It has just begun.
        ((102, 102), (100, 100), False),  # That is noise.
        ((1, 1), (0, 0), False),
    ],
)
def test_a_group_grows_when_more_comes_than_goes_for_ten_minutes(clock, entered, left, grows):
    add_long_ago(clock, 2)
    for minute in range(NOW - 10, NOW):
        half = minute >= NOW - 5
        happen(minute, claimed=20, entered=entered[half], left=left[half])
    hear(0, clock, groups=["mail"])
    found = of()
    assert (found.kind is Kind.GROWING) == grows
    assert not found.is_alarm
    if grows:
        assert found.text == "Growing for 10 min: 80 in, 20 out per minute, 1 worker."


@pytest.mark.parametrize(("minutes", "is_alarm"), [(61, True), (59, False)])
def test_a_pause_is_told_and_a_long_one_is_an_alarm(clock, minutes, is_alarm):
    add(count=2)
    pauses.pause("mail", Actor("Ann", reason="deploy."))
    pauses.pause("empty", Actor("Ann"))
    clock.set(PausedGroup.objects.get(group="mail").at_ms + minutes * MINUTE_MS)
    assert of().text == f"Paused by Ann {'1 h' if is_alarm else '59 min'} ago: deploy. 2 waiting."
    assert of().is_alarm == is_alarm
    assert elsewhere() == (["empty: Paused by Ann 1 h ago."] if is_alarm else [])


def test_a_small_group_is_looked_at_when_a_lost_worker_has_named_it(clock, monkeypatch):
    monkeypatch.setattr(diagnosis, "MOST_GROUPS", 1)
    add_long_ago(clock, 30, group="small")
    happen(NOW - 20, group="small", claimed=1)
    add("large", count=3)
    assert troubles() == []
    hear(0, clock, 8, groups=["another"])
    hear(150_000, clock, groups=["small"])
    assert troubles() == ["small: Stalled for 19 min: 1 ready, its only worker Kim-7 is lost."]


def test_the_worst_comes_first(clock):
    add_long_ago(clock, 30, group="still")
    happen(NOW - 20, group="still", claimed=1)
    add("noisy"), add("paused"), add("fine")
    happen(NOW - 2, group="noisy", failures=30)
    pauses.pause("paused", Actor("Ann"))
    assert [line.partition(":")[0] for line in troubles()] == ["still", "noisy", "paused"]


@pytest.mark.parametrize(
    ("count", "text"),
    [(1, "Paused: 1 of 6 groups: g0."), (5, "Paused: 5 of 6 groups: g0, g1, g2 and 2 more."), (0, "")],
)
def test_a_folder_tells_the_worst_of_its_groups(clock, count, text):
    names = [f"g{number}" for number in range(6)]
    for name in names:
        add(name)
    for name in names[:count]:
        pauses.pause(name, Actor("Ann"))
    found = diagnosis.of_folder("g", names, diagnosis.troubled(diagnosis.of_worst(clients.seen())))
    assert found.text == text


def test_why_a_task_waits(clock):
    [task] = add(timespec_ms=NOW * MINUTE_MS - 5_000)
    assert told(task, clock) == "Waiting for 5 s: next in line; no worker claims there."
    add(count=3, priority=1)
    [behind] = add()
    claim(count=2, owner=7)
    assert told(behind, clock) == "Waiting for 0 s: behind 2 others; 2 claimed."
    hear(0, clock, groups=["mail"])
    assert told(behind, clock) == "Waiting for 0 s: behind 2 others; 1 worker, 2 claimed."
    limits.put(LimitsRequest("mail", running=2))
    assert told(behind, clock) == "Waiting for 0 s: behind 2 others; 2 of 2 running."
    pauses.pause("mail", Actor("Ann", reason="deploy"))
    assert told(task, clock) == "Paused by Ann just now: deploy. 3 waiting."
    [later] = add(timespec_ms=-60_000)
    assert told(later, clock) is None


def test_which_attempt_comes_next(clock):
    [plain] = add(error="once", timespec_ms=-40_000)
    assert told(plain, clock) == "Retrying: the next attempt,"
    [noted] = add(error="once", labels={ATTEMPTS: "1"})
    assert told(noted, clock) == "Retrying: attempt 2, due"
    record = JobRecord(
        function="work",
        options=JobOptions(max_attempts=5),
        attempts=(Attempt(how=How.FAILED, error=JobError(type="E")),),
    )
    [job] = add("jobs/default", error="E", data=record.encode(), timespec_ms=-40_000)
    assert told(job, clock) == "Retrying: attempt 2 of 5,"


def told(task, clock) -> str | None:
    found = diagnosis.of_task(task, clock.now_ms, clients.seen(), bytes(task.data))
    return found.text if found else None


def lacking(function, since_ms):
    error = JobError(type="UnknownFunction", message=f"this worker does not run {function}")
    attempt = Attempt(started=since_ms, how=How.GIVEN_BACK, error=error, times=9)
    data = JobRecord(function=function, attempts=(attempt,)).encode()
    return {"data": data, "labels": {"function": function, "unknown_function": function}, "timespec_ms": LATER_MS}


def test_a_function_that_no_worker_has_is_told_after_an_hour(clock, settings):
    added = add("jobs/default", 3, **lacking("shop.tasks.f", NOW * MINUTE_MS - 30 * MINUTE_MS))
    add("jobs/default")  # Not all of the queue's jobs.
    assert of("jobs/default").kind is Kind.WAITING
    settings.TASKSTORE_MISSING_FUNCTION_MINUTES = 20
    found = of("jobs/default")
    assert (found.kind, found.is_alarm) == (Kind.STALLED, True)
    assert found.text == "Function missing for 30 min: no worker has shop.tasks.f, 3 waiting."
    assert troubles() == ["jobs/default: Function missing for 30 min: no worker has shop.tasks.f, 3 waiting."]
    one = Task.objects.get(pk=added[0].id)
    waits = diagnosis.of_task(one, NOW * MINUTE_MS, [], bytes(one.data))
    assert waits is not None
    assert waits.text == (
        "Function missing for 30 min: no worker that has claimed it has shop.tasks.f. It is offered again"
    )
    assert waits.next_ms == LATER_MS


@only_postgresql
@pytest.mark.parametrize("statement", ["SELECT pg_current_xact_id()", "DECLARE rows CURSOR FOR SELECT 1"])
def test_a_transaction_that_somebody_has_left_open_is_told(transactional_db, monkeypatch, statement):
    assert elsewhere() == []
    monkeypatch.setattr(diagnosis, "LONG_TRANSACTION_MS", 40)
    with psycopg.connect(**parameters_of("default"), application_name="report") as other:
        other.execute("SELECT 1")
        time.sleep(0.05)
        assert not any("process" in text for text in elsewhere())  # It keeps nothing.
        other.execute(statement)
        [found] = elsewhere()
        user, process = connection.settings_dict["USER"], other.info.backend_pid
        assert found == (
            f"Database: Transaction open for 0 s: {user}, report, process {process}. "
            "Until it ends, deleted tasks take up room and claims become slower."
        )
    assert elsewhere() == []


def test_what_is_done_to_many_tasks_is_told_while_it_goes_on(clock):
    BulkOperation.objects.create(
        pk=3, verb="purge", in_words="all failed tasks", expected=70, done=10, skipped=2, began_at_ms=0
    )
    BulkOperation.objects.create(pk=4, verb="move", expected=70, began_at_ms=0, state="done")
    assert elsewhere() == ["Purge of all failed tasks: Running: 12 of 70 tasks done."]
