"""What clients hold: the tasks whose leases run, by owner."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, Min

from .counts import group_counts
from .models import Task

FEW_GROUPS = 500  # Looked at one by one; with more, all tasks are.


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    tasks: int
    since_ms: int | None  # When the oldest lease began, or was last renewed; None: there is none.


NOTHING = Holding(tasks=0, since_ms=None)


def holdings() -> dict[int, Holding]:
    """By client id, without those that hold nothing."""
    claimed = Task.objects.get_queryset().claimed(Task.objects.now_ms())
    groups = [group for group, counts in group_counts().items() if counts.claimed]
    if len(groups) <= FEW_GROUPS:
        claimed = claimed.filter(group__in=groups)
    by_owner = claimed.values_list("owner").annotate(Count("id"), Min("leased_since_ms")).order_by()
    return {owner: Holding(tasks=tasks, since_ms=since_ms) for owner, tasks, since_ms in by_owner}
