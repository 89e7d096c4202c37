"""How many tasks each group holds in each state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from django.db.models import Count, Q

from .managers import TaskQuerySet
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
    rows = (
        tasks.values("group")
        .annotate(
            ready=Count("id", filter=is_available & ~is_leased),
            claimed=Count("id", filter=~is_available & is_leased),
            expired=Count("id", filter=is_available & is_leased),
            scheduled=Count("id", filter=~is_available & ~is_leased),
            failed=Count("id", filter=~Q(error="")),
        )
        .order_by("group")
    )
    return {row["group"]: _counts(row) for row in rows}


def _counts(row: Mapping[str, Any]) -> Counts:
    return Counts(**{name: row[name] for name in COUNTED})
