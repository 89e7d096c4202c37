"""The content of a release's fixture: something of everything, made with the store's own methods."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from django.contrib.auth.models import User
from django.utils import timezone

from tasks_app import bulk, schedules
from tasks_app.access import accounts, sessions, tokens
from tasks_app.access.accounts import Rights
from tasks_app.access.policy import actor_of
from tasks_app.bulk import Asked, Purge, Selection
from tasks_app.control import pauses
from tasks_app.core.actors import Actor
from tasks_app.core.operations import Commit, ResendKey
from tasks_app.database.rows import PAYLOAD_BYTES
from tasks_app.jobs.queues import enqueue
from tasks_app.models import Client, EndedSession, Level, SavedSearch, Scope, Task, Token
from tasks_app.reading import clients
from tasks_app.schedules import PlannedJob, PlannedTask, SchedulePlan
from tasks_app.writer import totals
from taskstore.errors import CommitRefused
from taskstore.types.job_record import JobRecord, JobStatus, finished_group, queue_group
from taskstore.types.tasks import Change, NewTask, Order

ANN, BOB = 17, 18  # Workers.
# They only open the stores that tests make of the fixtures.
TOKEN = "ts_of_the_fixtures"  # noqa: S105
PERSON, PASSWORD = "ann", "pw-of-the-fixtures"
LATER_MS = 4_102_444_800_000  # The year 2100.
LARGE = b"x" * PAYLOAD_BYTES  # Stored in a separate row, which successors share.


def fill() -> None:
    """Fill the empty store of the settings."""
    # People and programs.
    ann = User.objects.create_user(PERSON, password=PASSWORD, is_superuser=True, is_staff=True)
    accounts.add("bob", Rights(role="operator", sees_payloads=True), actor_of(ann))
    SavedSearch.objects.create(user=ann, name="failed mail", q="group:mail state:failed")
    sessions.end_all_of(User.objects.get(username="bob"))
    EndedSession.objects.create(id="0" * 32, until_ms=LATER_MS)
    token, _ = tokens.create("fixture", Scope.OPERATE)
    Token.objects.filter(pk=token.pk).update(hash=hashlib.sha256(TOKEN.encode()).hexdigest())
    tokens.create("mailer", Scope.WORK, ["mail", "pay/*"], timezone.now() + timedelta(days=30), [ANN])
    token, _ = tokens.create("revoked", Scope.READ)
    Token.objects.filter(pk=token.pk).update(revoked_at=timezone.now())
    clients.hear(Client(id=ANN, name="ann", host="a.example.org", pid=1, groups=["mail"], version="1", info="{}"))
    for number, deletes in enumerate(((), (1_000_000,))):  # One is done and one is refused.
        key = ResendKey(f"1/fixture-{number}", "d" * 64)
        adds = (NewTask(group="sent", data=b"again"),)
        with suppress(CommitRefused):
            Task.objects.perform(Commit(owner=ANN, adds=adds, deletes=deletes, key=key))

    # Tasks in each state, and tasks that have ended.
    first, second, third, fourth = Task.objects.commit(
        owner=ANN, adds=[NewTask(group="mail", data=f"letter {number}".encode()) for number in range(4)]
    )
    Task.objects.commit(
        owner=ANN,
        adds=[
            NewTask(group="mail", data=b"\x00\xff", labels={"to": "Bob", "für": 'a"b'}, priority=10),
            NewTask(group="mail", data=b"later", timespec_ms=LATER_MS),
            NewTask(group="a/b ü", data=LARGE, data_type="type.googleapis.com/Letter"),
            NewTask(group="reports", data=b"held"),
        ],
    )
    [held] = Task.objects.claim("reports", owner=BOB)
    Task.objects.commit(owner=BOB, updates=[Change(id=held.id, timespec_ms=-60_000)])
    Task.objects.claim("a/b ü", owner=BOB)
    Task.objects.commit(owner=ANN, updates=[Change(id=first.id, data=b"changed", labels={"to": "Bob"})])
    Task.objects.commit(owner=ANN, deletes=[second.id], adds=[NewTask(id=second.id, group="moved", data=b"moved")])
    Task.objects.commit(owner=ANN, deletes=[third.id])
    Task.objects.commit(owner=ANN, updates=[Change(id=fourth.id, error="no such recipient", release=True)])

    # A bulk operation.
    Task.objects.commit(owner=ANN, adds=[NewTask(group="spam", data=b"spam")] * 2)
    seen = bulk.preview(Selection(group="spam"))
    bulk.start(Asked(action=Purge(), selection=seen.selection, expected=2, typed="spam"), Actor(PERSON, reason="spam"))

    # Jobs and schedules.
    record = JobRecord(function="shop.mail.send", args=["bob@example.org"], kwargs={"copies": 2})
    for _ in range(2):
        enqueue(record)
    [job] = Task.objects.claim(queue_group("default"), owner=BOB, order=Order.OLDEST)
    done = replace(JobRecord.decode(bytes(job.data)), result={"pages": 3})
    finished = NewTask(id=job.id, group=finished_group("default", JobStatus.SUCCEEDED), data=done.encode())
    Task.objects.commit(owner=BOB, adds=[finished], deletes=[job.id])
    report = PlannedJob(function="reports.build", queue="reports")
    schedules.put("yearly", SchedulePlan(cron="0 0 1 1 *", zone="Europe/Berlin", job=report), Actor(PERSON))
    schedules.put("hourly", SchedulePlan(cron="@hourly", task=PlannedTask(group="hourly", data="1")), Actor(PERSON))
    schedules.pause("hourly", Actor(PERSON, reason="until the disks are larger"))

    pauses.pause("moved", Actor(PERSON, reason="Sunday"))
    totals.fold_here()
    Level.objects.create(minute=1, ready=1, claimed=1, expired=0, scheduled=1, failed=1, workers=1)
