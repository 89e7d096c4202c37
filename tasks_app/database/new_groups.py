"""How many groups there may be: a look at those that a commit adds to and that this process has not seen lately.

A commit to a group that the process knows pays nothing. What it knows it forgets after a few seconds, as the group
may have ended; so the limits may be exceeded by what comes and goes, or is brought into existence by other processes,
within that time. What is counted is what the database holds, whichever server started when.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


memories: dict[str, Memory] = defaultdict(Memory)


def refuse_too_many(
    operations: Sequence[Operation], outcomes: list[Effect | Any | None], dialect: Dialect
) -> Steps[None]:
    """Refuse the undecided commits that would bring more groups into existence than there may be."""
    known = _remembered(dialect).known
    wanted = [
        (place, operation.scope, unknown)
        for place, operation in enumerate(operations)
        if isinstance(operation, Commit)
        and (operation.adds or operation.updates or operation.batch)
        and outcomes[place] is None
        and (unknown := {group: name for name, group in _targets(operation) if group not in known})
    ]
    if wanted:
        yield from _learn({group for *_, groups in wanted for group in groups}, dialect)
    for place, scope, groups in wanted:
        if against := (yield from _reason_against(groups, scope, dialect)):
            group, reason = against
            why = f'group "{group}": {reason}' if _is_planned(groups[group]) else reason
            outcomes[place] = TooManyGroups({groups[group]: [why]})


def why_too_many(groups: Iterable[str], scope: GroupScope, dialect: Dialect) -> Steps[str]:
    """Return why so many groups may not come into existence together, as a batch adds to them; empty: they may."""
    if unknown := {*groups} - _remembered(dialect).known:
        yield from _learn(unknown, dialect)
        if against := (yield from _reason_against(dict.fromkeys(sorted(unknown), ""), scope, dialect)):
            return f'group "{against[0]}": {against[1]}'
    return ""


def are_known(commit: Commit, dialect: Dialect) -> bool:
    """Whether it brings no group into existence."""
    return {change.group for change in commit.updates} - {None} <= _remembered(dialect).known


def _remembered(dialect: Dialect) -> Memory:
    memory = memories[dialect.using]
    now_s = time.monotonic()
    if now_s - memory.since_s > REMEMBERED_S:
        memory.known, memory.since_s = set(), now_s
    return memory


def _learn(groups: Iterable[str], dialect: Dialect) -> Steps[None]:
    """Look which of the groups are there."""
    is_one = f'"group" IN (SELECT name FROM {dialect.names})'
    sql = f"""
        SELECT "group" FROM tasks_app_grouptotal WHERE {is_one}
        UNION
        SELECT "group" FROM tasks_app_countdelta WHERE {is_one}
    """
    [rows] = yield [Statement(sql, [dialect.list_of_names(sorted(groups))] * 2)]
    memories[dialect.using].known.update(name for (name,) in rows)


def _is_planned(name: str) -> bool:
    return name.startswith(PLANS + LISTS)


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


def _reason_against(groups: Mapping[str, str], scope: GroupScope, dialect: Dialect) -> Steps[tuple[str, str] | None]:
    """The first of the groups that may not come into existence, and why, as a sentence. Counts them where all may.

    The groups have the names of their fields.
    """
    memory = memories[dialect.using]
    new = [group for group in groups if group not in memory.known]
    limits = _limits(scope) if new else {}
    for patterns, (most, setting) in limits.items():
        count = memory.counts.setdefault(patterns, Count())
        now_s = time.monotonic()
        is_old = now_s - count.counted_s > 60 or count.groups + len(new) > most
        if is_old and now_s >= count.next_s:
            [[(number,)]] = yield [_count(patterns)]
            took_s = time.monotonic() - now_s
            memory.counts[patterns] = count = Count(
                number, now_s, time.monotonic() + max(LEAST_REST_S, took_s * REST_PER_COUNT)
            )
        if count.groups + len(new) > most:
            whose = "the store has" if patterns is None else "this token's list covers"
            return new[0], (
                f"must be an existing group: {whose} {count.groups} of at most {most} groups ({setting}). "
                "A group ends with its last task."
            )
    added = [group for group in new if not _is_planned(groups[group])]  # Planned groups do not exist yet.
    memory.known.update(added)
    for patterns in limits:
        memory.counts[patterns].groups += len(added)
    return None


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
