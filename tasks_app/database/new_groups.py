"""How many groups there may be: a look at those that a commit adds to and that this process has not seen lately.

A commit to a group that the process knows pays nothing. What it knows it forgets after a few seconds, as the group
may have ended; so the limits may be exceeded by what comes and goes, or is brought into existence by other processes,
within that time. What is counted is what the database holds, whichever server started when.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.conf import settings

from taskstore.errors import TooManyGroups
from taskstore.types.batches import LETTERS, LISTS, PLANS

from ..core.operations import Commit, Effect, GroupScope, Operation, Update
from .group_patterns import Patterns, allowed_by
from .rows import Statement, Steps

if TYPE_CHECKING:
    from .dialect import Dialect

MOST_GROUPS, MOST_OF_A_TOKEN = 1_000_000, 100_000
REMEMBERED_S = 5.0
REST_PER_COUNT = 50.0  # To count a million groups takes a tenth of a second, in which commits wait.
LEAST_REST_S = 1.0


@dataclass(slots=True)
class Count:
    """How many groups there are, at least: those that were counted, and those that this process has added since."""

    groups: int = 0
    counted_s: float = 0.0
    next_s: float = 0.0  # Not before this they are counted again.


@dataclass(slots=True)
class Memory:
    """A process's knowledge of the groups in a database."""

    known: set[str] = field(default_factory=set)
    since_s: float = 0.0
    counts: dict[Patterns, Count] = field(default_factory=dict)

    def forget_old(self) -> None:
        now_s = time.monotonic()
        if now_s - self.since_s > REMEMBERED_S:
            self.known, self.since_s = set(), now_s


memories: dict[str, Memory] = defaultdict(Memory)


def refuse_too_many(
    operations: Sequence[Operation], outcomes: list[Effect | Any | None], dialect: Dialect
) -> Steps[None]:
    """Refuse the undecided commits that would bring more groups into existence than there may be."""
    memory = memories[dialect.using]
    memory.forget_old()
    known = memory.known
    wanted = {
        place: unknown
        for place, operation in enumerate(operations)
        if isinstance(operation, Commit)
        and (operation.adds or operation.updates or operation.batch)
        and outcomes[place] is None
        and (unknown := {group: name for name, group in _targets(operation) if group not in known})
    }
    if not wanted:
        return
    names = sorted({group for groups in wanted.values() for group in groups})
    [rows] = yield [_existing(names, dialect)]
    known.update(name for (name,) in rows)
    for place, groups in wanted.items():
        new = [group for group in groups if group not in known]
        operation = operations[place]
        if not new or not isinstance(operation, Commit):
            continue
        reason = yield from _reason_against(len(new), operation.scope, memory, dialect)
        if reason:
            field = groups[new[0]]
            why = f'group "{new[0]}": {reason}' if field.startswith(PLANS + LISTS) else reason
            outcomes[place] = TooManyGroups({field: [why]})
        else:
            # Planned groups do not exist yet.
            added = [group for group in new if not groups[group].startswith(PLANS + LISTS)]
            known.update(added)
            for patterns in _limits(operation.scope):
                memory.counts[patterns].groups += len(added)


def why_too_many(groups: Iterable[str], scope: GroupScope, dialect: Dialect) -> Steps[str]:
    """Return why so many groups may not come into existence together, as a batch adds to them; empty: they may."""
    memory = memories[dialect.using]
    memory.forget_old()
    unknown = sorted({*groups} - memory.known)
    if not unknown:
        return ""
    [rows] = yield [_existing(unknown, dialect)]
    memory.known.update(name for (name,) in rows)
    new = [group for group in unknown if group not in memory.known]
    reason = (yield from _reason_against(len(new), scope, memory, dialect)) if new else ""
    if not reason:
        memory.known.update(new)
        for patterns in _limits(scope):
            if patterns in memory.counts:
                memory.counts[patterns].groups += len(new)
    return reason and f'group "{new[0]}": {reason}'


def _targets(commit: Commit) -> Iterator[tuple[str, str]]:
    """The groups that it puts tasks into, each with the name of its field."""
    adds = "created" if isinstance(commit, Update) else "adds"
    for place, add in enumerate(commit.adds):
        yield f"{adds}[{place}].group", add.group
    for place, change in enumerate(commit.updates):
        if change.group is not None:
            yield f"updates[{place}].group", change.group
    for path, plan in commit.batch.plan.parts if commit.batch else ():
        for below, level in plan.levels:
            words = [PLANS[LETTERS.index(step)] for step in below if step in LETTERS]
            yield from ((".".join([path, *words]), group) for group in level.own_reach)


def _limits(scope: GroupScope) -> dict[Patterns, tuple[int, str]]:
    """How many groups there may be: all of them, and those that a token's list allows; with the setting of each."""
    limits: dict[Patterns, tuple[int, str]] = {
        None: (getattr(settings, "TASKSTORE_MAX_GROUPS", MOST_GROUPS), "TASKSTORE_MAX_GROUPS")
    }
    if not scope.is_everything:
        most = getattr(settings, "TASKSTORE_MAX_TOKEN_GROUPS", MOST_OF_A_TOKEN)
        limits[scope.patterns] = (most, "TASKSTORE_MAX_TOKEN_GROUPS")
    return limits


def _reason_against(new: int, scope: GroupScope, memory: Memory, dialect: Dialect) -> Steps[str]:
    """Why there may not be so many groups more, as a sentence; empty: there may."""
    for patterns, (most, setting) in _limits(scope).items():
        count = memory.counts.setdefault(patterns, Count())
        now_s = time.monotonic()
        is_old = now_s - count.counted_s > 60 or count.groups + new > most
        if is_old and now_s >= count.next_s:
            [[(groups,)]] = yield [_count(patterns)]
            took_s = time.monotonic() - now_s
            memory.counts[patterns] = count = Count(
                groups, now_s, time.monotonic() + max(LEAST_REST_S, took_s * REST_PER_COUNT)
            )
        if count.groups + new > most:
            whose = "the store has" if patterns is None else "this token's list covers"
            return (
                f"must be an existing group: {whose} {count.groups} of at most {most} groups ({setting}). "
                "A group ends with its last task."
            )
    return ""


def _existing(names: Sequence[str], dialect: Dialect) -> Statement:
    listed = dialect.list_of_names(names)
    is_one = f'"group" IN (SELECT name FROM {dialect.names})'
    return Statement(
        f"""
        SELECT "group" FROM tasks_app_grouptotal WHERE {is_one}
        UNION
        SELECT "group" FROM tasks_app_countdelta WHERE {is_one}
        """,
        [listed, listed],
    )


def _count(patterns: Patterns) -> Statement:
    condition, names = allowed_by(patterns)
    return Statement(
        f"""
        SELECT (SELECT count(*) FROM tasks_app_grouptotal WHERE {condition}) + (
            SELECT count(DISTINCT "group") FROM tasks_app_countdelta
            WHERE {condition}
                AND NOT EXISTS (
                    SELECT 1 FROM tasks_app_grouptotal AS folded WHERE folded."group" = tasks_app_countdelta."group"
                )
        )
        """,
        [*names, *names],
    )
