"""What the tests of schedules have in common."""

from typing import Any, TypeVar

from msgspec import UNSET

from tasks_app import schedules
from tasks_app.core.actors import Actor
from tasks_app.core.operations import Operator
from tasks_app.models import Task
from tasks_app.schedules import PlannedTask, SchedulePlan, ScheduleRecord, StoredSchedule
from tasks_app.schedules.running import due_claim, settle
from taskstore.types.schedules import LastRun, SchedulePause

T = TypeVar("T")

HOUR_MS = 3_600_000
OLAF = Operator(name="olaf")


def plan(cron: str = "@hourly", group: str = "mail", **asked: Any) -> SchedulePlan:
    return SchedulePlan(cron=cron, task=PlannedTask(group=group, data="hello"), **asked)


def put(name: str = "digest", *, by: str = "olaf", **asked: Any) -> StoredSchedule:
    made, _ = schedules.put(name, plan(**asked), Actor(by))
    return made


def look() -> int:
    """What a server does that looks for what is due. Says how many schedules were."""
    due = Task.objects.perform(due_claim())
    for task in due:
        settle(task)
    return len(due)


def added(group: str = "mail") -> list[Task]:
    return list(Task.objects.get_queryset().in_group(group).order_by("id"))


def now(name: str = "digest") -> StoredSchedule:
    return there(schedules.schedule(name))


def record_of(found: StoredSchedule | None) -> ScheduleRecord:
    return there(there(found).record)


def due_of(found: StoredSchedule | None) -> int:
    return there(there(found).next_ms)


def pause_of(found: StoredSchedule | None) -> SchedulePause:
    paused = record_of(found).paused
    assert paused is not UNSET
    return paused


def last_of(found: StoredSchedule) -> LastRun:
    last = record_of(found).last
    assert last is not UNSET
    return last


def there(value: T | None) -> T:
    assert value is not None
    return value
