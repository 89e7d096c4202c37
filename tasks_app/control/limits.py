"""Limits of groups: set, removed, and how much of them is used. The rules are in core/limits.py."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

from taskstore.errors import refuse
from taskstore.types.limits import GroupLimit as LimitAnswer
from taskstore.types.limits import LimitsRequest, LimitUse, Rate, problems_of
from taskstore.types.sentences import group_name

from ..access import audit
from ..core.actors import PROGRAM, Actor
from ..core.limits import Allowance, Claims, GroupLimit, Limits
from ..core.operations import EVERY_GROUP, GroupScope
from ..database import atomic, dialect_of
from ..database.limit_changes import limits_now
from ..models import LimitChange, RecentClaim, Task

BEING_CHANGED = "the limit is being changed"
MOST_TOLD = 100  # Values of a label.


def put(asked: LimitsRequest, actor: Actor = PROGRAM) -> LimitAnswer:
    """Limit a group, or each group with a prefix; a former limit of this name is replaced.

    What is leased already is counted, and may exceed the limit for a time. Raises InvalidInput, Forbidden when the
    actor may not change the group, and StoreBusy when transactions of others last for too long.
    """
    actor.must_change(asked.name)
    refuse([*problems_of(asked), *actor.problems()])
    with atomic():
        limit = Task.objects.set_limits(
            asked.name, running=asked.running, rate=asked.rate, by=asked.by, by_whom=actor.name
        )
        details = {"limits": str(_told(limit))}
        audit.record(actor, "set limits", group=asked.name, selection="the group", done=1, details=details)
    return limit_of(asked.name) or _told(limit)


@atomic()
def remove(name: str, actor: Actor = PROGRAM) -> LimitAnswer | None:
    """Remove the limit of this name. Returns it; None if there is none."""
    actor.must_change(name)
    refuse([*group_name("name", name), *actor.problems()])
    removed = Task.objects.remove_limits(name)
    if removed:
        audit.record(actor, "remove limits", group=name, selection="the group", done=1)
    return _told(removed) if removed else None


# ---- What they are, and how much of them is used


def limits_in(scope: GroupScope = EVERY_GROUP) -> list[LimitAnswer]:
    """Return all limits that the scope covers, sorted by name, without their use."""
    return [_told(limit) for limit in _limits() if scope.allows(limit.name)]


def limit_of(name: str) -> LimitAnswer | None:
    """Return the limit of a group with its use, or that of a prefix; None if there is none."""
    if name.endswith("*"):
        return next((_told(limit) for limit in _limits() if limit.name == name), None)
    return uses_of([name]).get(name)


def uses_of(groups: Collection[str]) -> dict[str, LimitAnswer]:
    """Return the limits of those of the groups that have one, with their use."""
    found = _limits()
    limits = Limits(limits=found)
    limited = {group: limit for group in groups if (limit := limits.of(group))} if found else {}
    if not limited:
        return {}
    changing = Limits(limits=found, changing=dict(LimitChange.objects.values_list("name", "holds")))
    now_ms = Task.objects.now_ms()
    leased: dict[str, Counter[str]] = defaultdict(Counter)
    sql = 'SELECT "group", value, count(*) FROM tasks_app_limitedtask WHERE leased = 1 GROUP BY "group", value'
    for group, value, count in dialect_of(Task.objects.db).rows(sql):
        leased[group][value] = count
    made: dict[str, list[Claims]] = defaultdict(list)
    for row in RecentClaim.objects.filter(group__in=list(limited)) if any(each.claims for each in found) else ():
        made[row.group].append(Claims(row.pk, row.value, row.at_ms, row.claims, row.again_ms))
    found_uses = dict[str, LimitAnswer]()
    for group, limit in limited.items():
        if changing.are_held(group):
            found_uses[group] = _told(limit, why=BEING_CHANGED)
            continue
        allowance = Allowance(group, limit, now_ms)
        allowance.learn(leased[group], made[group])
        found_uses[group] = _told(limit, allowance)
    return found_uses


def _limits() -> list[GroupLimit]:
    return limits_now(dialect_of(Task.objects.db))


def _told(limit: GroupLimit, allowance: Allowance | None = None, why: str = "") -> LimitAnswer:
    uses = [] if allowance is None else _uses(allowance)
    full = [use for use in uses if use.why]
    why = full[0].why if full else why
    if full and limit.by:
        shown = f"{limit.by}={full[0].value}" if full[0].value else f"without {limit.by}"
        why = f"{shown}: {why}" + (f", and {len(full) - 1} more" if len(full) > 1 else "")
    rate = Rate(limit.claims, limit.per_ms) if limit.claims is not None and limit.per_ms is not None else None
    return LimitAnswer(
        name=limit.name, running=limit.running, rate=rate, by=limit.by, use=tuple(uses[:MOST_TOLD]), why=why
    )


def _uses(allowance: Allowance) -> list[LimitUse]:
    values = dict.fromkeys([*allowance.leased, *allowance.recent, *([] if allowance.limit.by else [""])])
    uses = [
        LimitUse(
            value=value,
            leased=allowance.leased[value],
            claimed=sum(count for _, count in allowance.recent.get(value, ())),
            why=allowance.why(value),
        )
        for value in values
    ]
    return sorted(uses, key=lambda use: (not use.why, -use.leased, -use.claimed, use.value))
