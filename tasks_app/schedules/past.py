"""What became of the last due times of each schedule, noted as it happens, and of the tasks that it added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from taskstore.types.schedules import SCHEDULES
from taskstore.types.tasks import Ending, Standing, holds_results

from ..models import DueTime, EndedTask, Task

KEPT = 50  # Due times of a schedule.
Outcome = DueTime.Outcome

NONE: Mapping[int, int] = {}
ENDS = {Ending.DELETED: "succeeded", Ending.CANCELLED: "cancelled", Ending.PURGED: "purged"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A due time that has passed."""

    due_ms: int
    outcome: str
    why: str
    origin: int  # Of the task that was added, or that was in the way; 0: there is none.
    result: str  # What became of the task that was added: waiting, running, or how it ended; empty: unknown.
    took_ms: int | None  # From the time when it was added to its end.

    @property
    def look(self) -> str:
        """Return the result if there is one, otherwise the outcome: what a person looks for first."""
        return self.result or self.outcome


def note(schedule: int, outcome: str, due: Iterable[int], why: str = "", origins: Mapping[int, int] = NONE) -> None:
    """Note what became of due times. `schedule`: its origin. `origins`: of the tasks that were added, by due time."""
    found = dict.fromkeys(due)
    if not found:
        return
    rows = [
        DueTime(schedule=schedule, due_ms=due_ms, outcome=outcome, why=why, origin=origins.get(due_ms, 0))
        for due_ms in sorted(found)[-KEPT:]
    ]
    DueTime.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["schedule", "due_ms"], update_fields=["outcome", "why", "origin"]
    )
    of_schedule = DueTime.objects.filter(schedule=schedule)
    for oldest_ms in of_schedule.order_by("-due_ms").values_list("due_ms", flat=True)[KEPT - 1 : KEPT]:
        of_schedule.filter(due_ms__lt=oldest_ms).delete()


def forget_deleted() -> None:
    """Forget the due times of schedules that were deleted as tasks, such as by a purge."""
    DueTime.objects.exclude(schedule__in=Task.objects.get_queryset().in_group(SCHEDULES).values("origin")).delete()


def last_of(schedules: Iterable[int], most: int = KEPT) -> dict[int, list[Past]]:
    """Return the last due times of each of these schedules, the newest first."""
    rows: dict[int, list[DueTime]] = {schedule: [] for schedule in schedules}
    for row in DueTime.objects.filter(schedule__in=rows).order_by("-due_ms"):
        if len(rows[row.schedule]) < most:
            rows[row.schedule].append(row)
    added = [row.origin for each in rows.values() for row in each if row.outcome == Outcome.ADDED]
    living = {task.origin: task for task in Task.objects.get_queryset().of_chains(added).defer("data")} if added else {}
    ended = {end.origin: end for end in EndedTask.objects.filter(origin__in=added, successor=None)} if added else {}
    return {
        schedule: [_told(row, living.get(row.origin), ended.get(row.origin)) for row in each]
        for schedule, each in rows.items()
    }


def _told(row: DueTime, task: Task | None, end: EndedTask | None) -> Past:
    result, took_ms = "", None
    if row.outcome == Outcome.ADDED and task:
        result = "running" if task.leased else "failed" if task.standing == Standing.FAILED else "waiting"
        if holds_results(task.group):
            result, took_ms = task.group.rpartition("/")[2], task.made_at_ms - task.created_at_ms
    elif row.outcome == Outcome.ADDED and end:
        result, took_ms = ENDS.get(Ending(end.ending), end.ending), end.ended_at_ms - end.created_at_ms
    return Past(due_ms=row.due_ms, outcome=row.outcome, why=row.why, origin=row.origin, result=result, took_ms=took_ms)
