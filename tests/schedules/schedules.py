"""What the tests of schedules have in common."""

from typing import Any, TypeVar

from tasks_app import schedules
from tasks_app.core.actors import Actor
from tasks_app.core.operations import Operator
from tasks_app.models import Task
from tasks_app.schedules import PlannedTask, SchedulePlan, ScheduleRecord
from tasks_app.schedules.running import due_claim, settle
from taskstore.types.schedules import LastRun, Schedule, SchedulePause

T = TypeVar("T")

HOUR_MS = 3_600_000
OLAF = Operator(name="olaf")


def plan(cron: str = "@hourly", group: str = "mail", **asked: Any) -> SchedulePlan:
    return SchedulePlan(cron=cron, task=PlannedTask(group=group, data="hello"), **asked)


def put(name: str = "digest", *, by: str = "olaf", **asked: Any) -> Schedule:
    made, _ = schedules.put(name, plan(**asked), Actor(by))
    return made


def look() -> int:
    """What a server does that looks for what is due. Says how many schedules were."""
    due = list(map(Task.of, Task.objects.with_data(Task.objects.perform(due_claim()))))
    for task in due:
        settle(task)
    return len(due)


def added(group: str = "mail") -> list[Task]:
    return list(Task.objects.get_queryset().in_group(group).order_by("id"))


def now(name: str = "digest") -> Schedule:
    return there(schedules.schedule(name))


def task_of(found: Schedule | None) -> Task:
    return Task.objects.get(id=there(found).id)


def record_of(found: Schedule | None) -> ScheduleRecord:
    return ScheduleRecord.decode(bytes(task_of(found).data))


def due_of(found: Schedule | None) -> int:
    return there(there(found).next_ms)


def pause_of(found: Schedule | None) -> SchedulePause:
    return there(there(found).paused)


def last_of(found: Schedule) -> LastRun:
    return there(found.last)


def there(value: T | None) -> T:
    assert value is not None
    return value
