"""Fill a store with plausible work in every state, with history and rates, to try the console.

Tasks are added and ended by the store's own methods; only the past, which these can't create, is written directly.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from django.db.models import Sum
from msgspec.structs import replace

from tasks_app import schedules
from tasks_app.control import pauses
from tasks_app.core.actors import Actor
from tasks_app.core.tally import bucket_of
from tasks_app.jobs.queues import enqueue
from tasks_app.models import Client, Level, Rate, Task, WorkDone
from tasks_app.reading import clients
from tasks_app.reading.counts import group_counts
from tasks_app.schedules import PlannedJob, PlannedTask, SchedulePlan
from tasks_app.writer import totals
from taskstore.types.groups import LOST_MS
from taskstore.types.job_record import Attempt, How, JobError, JobRecord, JobStatus, finished_group, queue_group
from taskstore.types.scalars import MOST_CLAIMED
from taskstore.types.schedules import CatchUp
from taskstore.types.tasks import Change, NewTask, Order

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
AT_ONCE = 5_000  # Tasks of a commit.
RATES_AT_ONCE = 5_000
LARGEST_SHARE = 0.6  # Of all tasks in the largest group.
BUSY_GROUPS = 40  # With rates for each minute; the others have them for every few hours and the present.
STILL_GROUPS = 2  # Groups without active workers.
FIRST_OWNER = 5_000
HOUR, DAY = 60, 1_440  # Minutes.
SILENT_MS = 20 * MINUTE_MS  # Of a lost worker.

AREAS = ["mail", "billing", "images", "search", "reports", "import", "export", "push", "video", "fraud", "crm", "stock"]
STEPS = ("incoming", "fetch", "parse", "resize", "render", "send", "retry", "archive", "index", "notify", "sync")
REGIONS = ("eu", "us", "ap", "sa", "af")
ERRORS = (
    "connection to 10.{a}.{b}.{c} refused after {n} ms",
    "no such recipient <user{n}@example.org>",
    'key "order" is missing in /srv/inbox/{n}.json',
    "order {n} is unknown (request {hex})",
    'Traceback (most recent call last):\n  File "/srv/app/run.py", line {a}, in run\n    send(task)\n'
    "TimeoutError: no answer within {b} s",
    "HTTP 502 from https://api.example.org/v1/items/{n}",
)


@dataclass(kw_only=True)
class Seed:
    """Fills a store. `tell` gets the progress: the step, the number done, and the total."""

    tasks: int
    groups: int
    workers: int
    tell: Callable[[str, int, int], None]
    chance: random.Random = field(default_factory=lambda: random.Random(1))  # noqa: S311 - the same store each time.

    def sow(self) -> None:
        self._now_ms = Task.objects.now_ms()
        sizes = dict(zip(self._names(), sizes_of(self.tasks, self.groups), strict=True))
        self._add(sizes)
        self._work_on(sizes)
        self._register(list(sizes))
        self._remember(sizes)
        for name in list(sizes)[7:9]:
            pauses.pause(name, Actor("demo", reason="maintenance of a dependency"))
        sow_jobs(self.chance, range(FIRST_OWNER, FIRST_OWNER + self.workers))
        self._schedule(list(sizes))
        totals.fold_here()
        # Otherwise the charts would show only that a million tasks arrived within a minute.
        Rate.objects.filter(minute__gte=self._now_ms // MINUTE_MS).delete()
        self._remember_levels()
        self._remember_work()

    def _names(self) -> list[str]:
        names = [f"{area}/{step}" for step, area in itertools.product(STEPS, AREAS)]
        names += [f"{name}/{region}" for region, name in itertools.product(REGIONS, names)]
        more = (f"tenant-{number}/jobs" for number in itertools.count(1))
        return list(itertools.islice(itertools.chain(names, more), self.groups))

    # ---- Tasks

    def _add(self, sizes: dict[str, int]) -> None:
        done = 0
        for group, size in sizes.items():
            for start in range(0, size, AT_ONCE):
                new = [self._task(group) for _ in range(min(AT_ONCE, size - start))]
                done += len(Task.objects.commit(owner=0, adds=new))
                self.tell("tasks added", done, self.tasks)

    def _task(self, group: str) -> NewTask:
        chance = self.chance
        kind = chance.random()
        ago_ms = int(3 * DAY_MS * chance.random() ** 4)
        return NewTask(
            group=group,
            data=self._data(),
            timespec_ms=-int(2 * DAY_MS * chance.random()) - 1 if kind < 0.06 else self._now_ms - ago_ms,
            error=self._error() if kind > 0.97 else "",
            labels={"tier": chance.choice(("gold", "silver", "free")), "region": chance.choice(REGIONS)},
            priority=chance.choice((0, 0, 0, 0, 0, 10, -10)),
        )

    def _data(self) -> bytes:
        number = self.chance.randrange(10**6)
        content = {"order": number, "user": number % 50_000, "to": f"user{number % 50_000}@example.org"}
        return json.dumps(content | {"items": [{"sku": f"A-{number % 997}", "n": number % 7}]}).encode()

    def _error(self) -> str:
        numbers = {name: self.chance.randrange(256) for name in "abc"}
        return self.chance.choice(ERRORS).format(
            **numbers, n=self.chance.randrange(10**6), hex=f"{self.chance.getrandbits(48):012x}"
        )

    def _schedule(self, groups: Sequence[str]) -> None:
        task = PlannedTask(group=groups[-1], data='{"of": "yesterday"}', labels={"tier": "gold"})
        job = PlannedJob(function="reports.build", kwargs={"of": "yesterday"}, queue="reports")
        daily = SchedulePlan(cron="30 3 * * MON-FRI", zone="Europe/Berlin", job=job)
        schedules.put("daily-report", daily, Actor("demo"))
        schedules.put("hourly-sync", SchedulePlan(cron="@hourly", catch_up=CatchUp.LATEST, task=task), Actor("demo"))
        schedules.put("clean-up", SchedulePlan(cron="0 4 * * SUN", task=task), Actor("demo"))
        schedules.pause("clean-up", Actor("demo", reason="until the disks are larger"))

    # ---- Workers

    def _work_on(self, sizes: dict[str, int]) -> None:
        """In each group finish some tasks, fail some, hold some leases, and let some expire."""
        for number, (group, size) in enumerate(sizes.items()):
            few = min(max(size // 50, 2), AT_ONCE)
            for held in self._claimed(group, 2 * few, MINUTE_MS):
                self._finish(held)
            self._claimed(group, few // 4, 0)
            self._claimed(group, few // 2, 30 * MINUTE_MS)
            self.tell("groups worked on", number + 1, len(sizes))

    def _claimed(self, group: str, limit: int, lease_ms: int) -> list[list[Task]]:
        """Claim tasks for several workers, and yield them by worker."""
        owners = self.chance.sample(range(self.workers), min(3, self.workers))
        each = min(math.ceil(limit / len(owners)), MOST_CLAIMED)
        return [
            Task.objects.claim(group, owner=FIRST_OWNER + owner, duration_ms=lease_ms, limit=each, order=Order.OLDEST)
            for owner in owners
            if each
        ]

    def _finish(self, held: Sequence[Task]) -> None:
        """Finish most tasks, and give the others back with an error."""
        failing = [task for task in held if self.chance.random() < 0.1]
        changes = [Change(id=task.id, error=self._error(), release=True) for task in failing]
        done = [task.id for task in held if task not in failing]
        if held:
            Task.objects.commit(owner=held[0].owner, deletes=done, updates=changes)

    def _register(self, groups: Sequence[str]) -> None:
        for number in range(self.workers):
            clients.hear(
                Client(
                    id=FIRST_OWNER + number,
                    name=f"worker-{number + 1}",
                    host=f"node-{number % 8 + 1}.example.org",
                    pid=1_000 + self.chance.randrange(30_000),
                    groups=self.chance.sample(groups, min(4, len(groups))),
                    version=self.chance.choice(("2.3.1", "2.3.1", "2.4.0")),
                    info="{}",
                )
            )
        # One in twenty is lost, one in twenty is late.
        for number in range(self.workers):
            silent_ms = {0: SILENT_MS, 1: 45_000}.get(number % 20, self.chance.randrange(20_000))
            client = Client.objects.filter(id=FIRST_OWNER + number)
            client.update(seen_at_ms=Task.objects.now_ms() - silent_ms)

    @property
    def _lost(self) -> range:
        """Return the ids of the lost workers."""
        return range(0, self.workers, 20)

    # ---- The past

    def _remember(self, sizes: dict[str, int]) -> None:
        """Write rates of thirty days as housekeeping keeps them."""
        total, counts = len(sizes), group_counts()
        for number, group in enumerate(sizes):
            size = counts[group].tasks if group in counts else 0
            is_still = BUSY_GROUPS <= number < BUSY_GROUPS + STILL_GROUPS
            rates = list(self._rates(group, size, is_busy=number < BUSY_GROUPS, is_still=is_still))
            Rate.objects.bulk_create(leading_to(size, rates), RATES_AT_ONCE, ignore_conflicts=True)
            self.tell("groups with a past", number + 1, total)

    def _rates(self, group: str, size: int, *, is_busy: bool, is_still: bool) -> Iterator[Rate]:
        now = self._now_ms // MINUTE_MS
        backlog, busyness = size * 1.2 + 10, 2 + size / 2_000
        for minutes, oldest, newest in ((60, 43_200, 10_080), (10, 10_080, 1_440), (1, 1_440, 1)):
            every = minutes if is_busy else max(minutes, 240)
            start = (now - oldest) - (now - oldest) % minutes
            for minute in range(start, now - newest - minutes + 1, every):
                entered = self._many(busyness * minutes * day_and_night(minute))
                left = min(self._many(busyness * minutes * day_and_night(minute - 20)), int(backlog) + entered)
                backlog = max(0, backlog + entered - left + (size - backlog) * minutes / 20_000)
                yield self._rate(group, minutes, minute, entered, left, int(backlog))
        if not is_still:
            some = max(1, self._many(busyness * day_and_night(now)))
            yield self._rate(group, 1, now - 1, some, some, int(backlog))

    def _rate(self, group: str, minutes: int, minute: int, entered: int, left: int, tasks: int) -> Rate:
        waits = f"{bucket_of(self.chance.randrange(200, 3_000))}:{left} {bucket_of(20_000)}:{left // 20 + 1}"
        runs = f"{bucket_of(self.chance.randrange(400, 1_500))}:{left} {bucket_of(9_000)}:{left // 30 + 1}"
        return Rate(
            group=group,
            minutes=minutes,
            minute=minute,
            entered=entered,
            left=left,
            failures=self._many(left / 60),
            claimed=left,
            tasks=tasks,
            waits=waits,
            runs=runs,
        )

    def _remember_levels(self) -> None:
        """Write the levels of a day, which end at the present counts. Lost workers were heard until a while ago."""
        numbers, end = totals.numbers_of_all(), Task.objects.now_ms() // MINUTE_MS
        Level.objects.all().delete()
        Level.objects.bulk_create(
            Level(
                minute=end - ago,
                workers=self.workers - (len(self._lost) if ago * MINUTE_MS < SILENT_MS - LOST_MS else 0),
                **{
                    state: self._many(getattr(numbers, state) * up_and_down(ago, place))
                    for place, state in enumerate(totals.LEVELS)
                },
            )
            for ago in range(DAY, 0, -1)
        )

    def _remember_work(self) -> None:
        """Write the work of an hour: each worker did its share of what left the groups, until it was lost."""
        end = Task.objects.now_ms() // MINUTE_MS
        left = Rate.objects.filter(minutes=1, minute__gte=end - HOUR).aggregate(left=Sum("left"))["left"] or 0
        WorkDone.objects.all().delete()
        for number in range(self.workers):
            pace = left / HOUR / self.workers * self.chance.uniform(0.5, 1.5)
            silent = SILENT_MS // MINUTE_MS if number in self._lost else 0
            minutes = range(end - HOUR, end - silent)
            work = (WorkDone(minute=at, client=FIRST_OWNER + number, tasks=self._many(pace)) for at in minutes)
            WorkDone.objects.bulk_create(work, ignore_conflicts=True)

    def _many(self, mean: float) -> int:
        """Return a random integer near the mean, at least 0."""
        return max(0, round(self.chance.gauss(mean, math.sqrt(mean) + 0.1)))


def sizes_of(tasks: int, groups: int) -> list[int]:
    """Return group sizes that add up to `count`: one large group and ever smaller ones, none of them empty."""
    largest = int(tasks * LARGEST_SHARE) if groups > 1 else tasks
    weights = [1 / (place + 1) for place in range(groups - 1)]
    rest = tasks - largest
    sizes = [largest, *(max(1, int(rest * weight / sum(weights))) for weight in weights)]
    sizes[0] += tasks - sum(sizes)
    return sizes


def leading_to(size: int, rates: list[Rate]) -> list[Rate]:
    """Yield the rates of a group whose backlog ends at the present count."""
    more = size - rates[-1].tasks
    for rate in rates:
        rate.tasks = max(0, rate.tasks + more)
    return rates


def up_and_down(minutes_ago: int, place: int) -> float:
    """Return the relative backlog at a time, from 0.6 to 1 at present. It depends on the group."""
    return 1 - 0.2 * (1 - math.cos(minutes_ago / (4 + place))) * (place > 0)


def day_and_night(minute: int) -> float:
    """Return the activity at a time: from 0.2 at night to 1 by day (UTC)."""
    return 0.6 - 0.4 * math.cos(2 * math.pi * (minute % 1_440) / 1_440)


FUNCTIONS = ("shop.invoices.render", "shop.mail.send", "shop.images.resize", "shop.reports.month")
QUEUES = ("default", "reports")
FINISHED, WAITING, LATER = 24, 6, 3  # Jobs of each queue.
TRACEBACK = (
    'Traceback (most recent call last):\n  File "/srv/shop/mail.py", line 41, in send\n'
    "    answer = server.deliver(to, text)\nTimeoutError: no answer within 30 s\n"
)
ERROR = JobError(type="TimeoutError", message="no answer within 30 s", traceback=TRACEBACK)


def sow_jobs(chance: random.Random, owners: range) -> None:
    """Add jobs of each status to each queue; the started ones are held by these clients."""
    for queue in QUEUES:
        for number in range(FINISHED + WAITING):
            enqueue(_record(chance, number), queue=queue, priority=chance.choice((0, 0, 10)))
        for task in Task.objects.claim(queue_group(queue), owner=owners[0], limit=FINISHED, order=Order.OLDEST):
            _finish(task, queue, chance)
        Task.objects.claim(queue_group(queue), owner=owners[-1], duration_ms=30 * MINUTE_MS, limit=2)
        unwanted = enqueue(_record(chance, 0), queue=queue)
        Task.objects.cancel([unwanted.id], by="olaf", reason="ordered twice")
        for number in range(LATER):
            enqueue(_record(chance, number), queue=queue, at_ms=-(number + 1) * 20 * MINUTE_MS)


def _record(chance: random.Random, number: int) -> JobRecord:
    order = chance.randrange(10**6)
    kwargs = {"to": f"user{order % 50_000}@example.org", "copies": chance.randrange(1, 4)}
    return JobRecord(function=FUNCTIONS[number % len(FUNCTIONS)], args=[order], kwargs=kwargs)


def _finish(task: Task, queue: str, chance: random.Random) -> None:
    """Finish a job: most succeed."""
    fails, now_ms = chance.random() < 0.2, Task.objects.now_ms()
    attempt = Attempt(
        started=now_ms - chance.randrange(400, 50_000),
        ended=now_ms,
        how=How.FAILED if fails else How.SUCCEEDED,
        worker=f"worker-{chance.randrange(1, 9)}",
        host=f"node-{chance.randrange(1, 5)}.example.org",
        pid=1_000 + chance.randrange(30_000),
        error=ERROR if fails else None,
        final=True,
    )
    record = replace(
        JobRecord.decode(bytes(task.data)),
        attempts=(attempt,),
        result=None if fails else {"pages": chance.randrange(1, 40), "file": f"invoices/{task.id}.pdf"},
        error=attempt.error,
        log=f"order {task.id}: rendering\norder {task.id}: {'gave up' if fails else 'done'}\n",
    )
    group = finished_group(queue, JobStatus.FAILED if fails else JobStatus.SUCCEEDED)
    error = ERROR.line if fails else ""
    finished = NewTask.successor_of(task, group=group, data=record.encode(), error=error)
    Task.objects.commit(owner=task.owner, adds=[finished], deletes=[task.id])
