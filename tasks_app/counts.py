"""How many tasks each group holds in each state."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import itemgetter

from django.db.models import Count, Q

from .managers import TaskQuerySet, rows_at_once
from .models import Task
from .operations import EVERY_GROUP, GroupScope


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of tasks. Failed ones are counted beside their state, not instead of it."""

    ready: int = 0
    claimed: int = 0
    expired: int = 0
    scheduled: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        return self.ready + self.claimed + self.expired + self.scheduled


COUNTED = tuple(field.name for field in fields(Counts))


def group_counts(scope: GroupScope = EVERY_GROUP) -> dict[str, Counts]:
    """The counts of every group that holds a task, by its name, sorted. Reads the whole index once."""
    return _counted(Task.objects.get_queryset().within(scope))


def counts_of(group: str) -> Counts:
    """The counts of one group; zeros when it does not exist."""
    return _counted(Task.objects.get_queryset().in_group(group)).get(group, Counts())


def _counted(tasks: TaskQuerySet) -> dict[str, Counts]:
    now_ms = Task.objects.now_ms()
    is_available, is_leased = Q(available_at_ms__lte=now_ms), Q(leased=True)
    counted = tasks.values("group").annotate(
        ready=Count("id", filter=is_available & ~is_leased),
        claimed=Count("id", filter=~is_available & is_leased),
        expired=Count("id", filter=is_available & is_leased),
        scheduled=Count("id", filter=~is_available & ~is_leased),
        failed=Count("id", filter=~Q(error="")),
    )
    rows = sorted(rows_at_once(counted.order_by(), "group", *COUNTED), key=itemgetter(0))
    return {group: Counts(**dict(zip(COUNTED, numbers, strict=True))) for group, *numbers in rows}
