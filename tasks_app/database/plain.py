"""PostgreSQL as the writer uses it: a batch of plain operations takes two round trips of few, simple statements.

Plain are claims of one group, and commits without depends, unique keys and operator: nearly all that workers send. The
look locks everything in one statement and then draws the ids, so that each is larger than those of what is locked.

Whatever is unusual is looked at the general way of postgresql.py in the same transaction: a group that is paused,
something of a higher priority, the end of a log that may be lost. When more is locked after the ids were drawn, others
are drawn, at the price of one more round trip.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from taskstore.types.tasks import Order

from ..core.limits import Limits
from ..core.operations import Claim, Operation, Query, Update
from ..core.tally import COUNTERS
from .claim_pools import Demand, best_first, kept_by_key, keys_of
from .limits import known as known_limits
from .plain_sets import Sets
from .postgresql import LIMITS_VERSION, PostgreSQL
from .postgresql_arrays import Column, RowPacker, numbers_in, packed
from .rows import (
    COLUMNS,
    DELTA_COLUMNS,
    ENDED_COLUMNS,
    KEPT_ANSWER_COLUMNS,
    Questions,
    Row,
    Statement,
    Steps,
    Unread,
    quoted,
    record_of,
    without_shared_data,
)
from .transaction_values import Seen, Written

MOST = 1_024  # Tasks that a plain batch names, and ids that it draws. Beyond it the statements count for little.

# How the columns of these tables are called, in the order of the rows that are packed.
PACKED_TABLES = {
    "tasks_app_task": COLUMNS,
    "tasks_app_endedtask": ENDED_COLUMNS,
    "tasks_app_keptanswer": KEPT_ANSWER_COLUMNS,
    "tasks_app_countdelta": ("id", *DELTA_COLUMNS),
}
# Columns whose values are hardly ever the same twice.
VARIED = {"key", "digest", "answer", "ids", *COUNTERS}
ROW_TYPES = Statement(
    f"""
    SELECT relname::text, reltype::bigint, attname::text, atttypid::regtype::text, attnotnull
    FROM pg_class
    JOIN pg_attribute ON attrelid = pg_class.oid
    WHERE pg_class.oid IN ({", ".join(f"'{table}'::regclass" for table in PACKED_TABLES)})
        AND attnum > 0 AND NOT attisdropped
    ORDER BY relname, attnum
    """
)

# By the places of rows that are locked: no index is looked into, not even a wrong one while a plan knows nothing.
REMOVAL = "DELETE FROM tasks_app_task WHERE ctid = ANY(%s::tid[])"
INSERTION = {table: f"INSERT INTO {table} SELECT * FROM unnest(%s::{table}[])" for table in PACKED_TABLES}
# The database gives these rows their ids.
INSERTION["tasks_app_countdelta"] = f"""
    INSERT INTO tasks_app_countdelta ({", ".join(quoted(DELTA_COLUMNS))})
    SELECT {", ".join(quoted(DELTA_COLUMNS))} FROM unnest(%s::tasks_app_countdelta[])
"""


@dataclass(slots=True)
class Asked:
    """The demand of a plain batch."""

    named: list[int] = field(default_factory=list)
    # Of these: what commits replace, with the owner of each commit. What is refused must not use up ids.
    replaced: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    demands: dict[str, Demand] = field(default_factory=dict)
    drafts: int = 0  # At most.


def asked_by(operations: Sequence[Operation], limits: Limits) -> Asked | None:
    """The demand of the operations; None when one of them is not plain."""
    asked = Asked()
    for operation in operations:
        if operation.depends:
            return None
        if isinstance(operation, Claim):
            groups = operation.groups
            if isinstance(operation, Query):
                return None
            if len(groups) > 1 or not operation.scope.allows(groups[0]):
                return None
            if limits.of(groups[0]):
                return None
            demand = asked.demands.get(groups[0])
            if demand is None:
                demand = asked.demands[groups[0]] = Demand()
            demand.limit += operation.limit
            demand.oldest |= operation.order is Order.OLDEST
            asked.drafts += operation.limit
        else:
            if operation.operator:
                return None
            if any(add.unique or not add.group for add in operation.adds):
                return None
            drafts = len(operation.adds) + len(operation.updates)
            named = operation.changed_ids if operation.updates else operation.deletes
            if drafts and named:
                if operation.scope.patterns is not None and isinstance(operation, Update):
                    return None
                asked.replaced += named
                asked.owners += [operation.owner] * len(named)
            asked.named += named
            asked.drafts += drafts
    if asked.drafts > MOST or len(asked.named) > MOST:
        return None
    if any(demand.oldest for demand in asked.demands.values()):
        asked.drafts = 0  # There may be fewer tasks than are asked for: ids are drawn once they are locked.
    is_contested = bool(asked.replaced) and len(set(asked.named)) < len(asked.named)
    return None if is_contested else asked


class PlainPostgreSQL(PostgreSQL):
    """`row_packers`: of the tables with packed rows. None: they are not known, and every batch goes the general way."""

    def __init__(self, using: str, *, waits: bool = False) -> None:
        super().__init__(using, waits=waits)
        self.row_packers: Mapping[str, RowPacker] | None = None
        self.has_sets = False  # They are long statements, and worth while only where they are prepared.

    def know_candidates(self, ids: Mapping[str, Sequence[int]]) -> None:
        """Take these tasks for the longest available of their groups, without priorities."""
        for group, each in ids.items():
            self.pools.know(group, each)

    def array(self, type_name: str, values: Sequence[Any]) -> Any:
        return packed(type_name, values)

    def sets_of(self, operations: Sequence[Operation]) -> Sets | None:
        return (Sets(operations, self) or None) if self.has_sets and self.row_packers else None

    def look(self, operations: Sequence[Operation]) -> Steps[Seen]:
        asked = asked_by(operations, known_limits(self.using)) if self.row_packers else None
        if asked is None or not all(self.pools.knows(group, each) for group, each in asked.demands.items()):
            return (yield from super().look(operations))
        seen = yield from self._look_at_once(operations, asked)
        return seen or (yield from super().look(operations))

    def _look_at_once(self, operations: Sequence[Operation], asked: Asked) -> Steps[Seen | None]:
        """Lock all that is named and the candidates, read the time and draw the ids. None: something is unusual."""
        demands, keys = asked.demands, keys_of(operations)
        chosen: dict[str, list[int]] = {}
        priorities: dict[str, int] = {}
        if demands:
            self.pools.begin(demands)
            for group, demand in demands.items():
                if not demand.oldest:
                    priorities[group], chosen[group] = self.pools.take(group, demand.limit) or (0, [])
        questions = Questions()
        ids = {task_id for each in chosen.values() for task_id in each}.union(asked.named)
        rows = questions.ask(self._lock_listed(ids)) if ids else []
        oldest = {
            group: questions.ask(self._lock_chosen(group, demand, f"{self.selected}, ctid::text"))
            for group, demand in demands.items()
            if demand.oldest
        }
        kept = questions.ask(self.kept_answers(keys)) if keys else []
        # Last, as in the general look; and ids are drawn when all is locked.
        numbers = questions.ask(self._time_numbers_and_ids(len(operations), asked, priorities))
        yield from questions.answered()
        [(now_ms, is_log_intact, limits_version, sent_commits, sent_ids, is_unusual)] = numbers
        if is_unusual or not is_log_intact:
            for group, each in chosen.items():
                self.pools.put_back(group, each, is_plain=False)
            return None
        named = {row[0]: record_of(row[:-1]) for row in rows}
        candidates = {
            group: [task for task_id in each if (task := named.get(task_id)) and task.available_at_ms <= now_ms]
            for group, each in chosen.items()
        }
        for group, found in oldest.items():
            candidates[group] = best_first([row[:-1] for row in found], demands[group])
        rows = [row for found in (rows, *oldest.values()) for row in found]
        seen = Seen(
            now_ms=now_ms,
            named=named,
            candidates=candidates,
            commits=numbers_in(sent_commits),
            kept=kept_by_key(kept),
            ids=numbers_in(sent_ids),
            places={row[0]: row[-1] for row in rows},
            limits_version=limits_version,
        )
        if any(len(candidates[group]) < demand.limit for group, demand in demands.items()):
            yield from self._look_behind_locks(demands, seen)
        if missing := [task_id for task_id in asked.named if task_id not in named]:
            yield from self._note_locked(missing, seen)
        return seen

    def _lock_listed(self, ids: Iterable[int]) -> Statement:
        sql = f"""
            SELECT {self.selected}, ctid::text FROM tasks_app_task WHERE {self.is_listed}
            ORDER BY id FOR UPDATE SKIP LOCKED
        """
        return Statement(sql, [self.list_of(ids)])

    def _time_numbers_and_ids(self, commits: int, asked: Asked, priorities: Mapping[str, int]) -> Statement:
        # In the same words as the look at known candidates in postgresql_claims.py; but what has a higher priority is
        # asked for whether or not it is available.
        unusual = """
            EXISTS (
                SELECT FROM unnest(%s::text[], %s::smallint[]) AS claimed(name, known)
                WHERE EXISTS (SELECT FROM tasks_app_pausedgroup WHERE "group" = name)
                    OR (SELECT max(priority) FROM tasks_app_task WHERE "group" = name AND priority > known) IS NOT NULL
            )
        """
        # No id is drawn where the rules will refuse a commit that needs some: ids are not skipped without need.
        refused = f"""
            EXISTS (
                SELECT FROM unnest(%s::bigint[], %s::bigint[]) AS replaced(task_id, commit_owner)
                WHERE NOT EXISTS (
                    SELECT FROM tasks_app_task
                    WHERE id = task_id AND (available_at_ms <= (SELECT {self.clock}) OR owner = commit_owner)
                )
            )
        """
        sql = f"""
            SELECT {self.clock}, EXISTS (SELECT FROM tasks_app_log_intact), {LIMITS_VERSION},
                array_send(ARRAY(SELECT nextval('tasks_app_commits') FROM generate_series(1, %s))),
                array_send(ARRAY(
                    SELECT nextval('tasks_app_ids')
                    FROM generate_series(1, {f"CASE WHEN {refused} THEN 0 ELSE %s END" if asked.replaced else "%s"})
                )),
                {unusual if priorities else "false"}
        """
        parameters: list[Any] = [commits]
        if asked.replaced:
            parameters += [self.list_of(asked.replaced), self.list_of(asked.owners)]
        parameters.append(asked.drafts)
        if priorities:
            parameters += [self.array("text", list(priorities)), self.array("smallint", list(priorities.values()))]
        return Statement(sql, parameters)

    def write(self, written: Written) -> Steps[None]:
        packers = self.row_packers
        if not packers:
            yield from super().write(written)
            return
        self.pools.lower(written.drafts)
        before, statements = list(self.freeing(written)), list[Statement]()
        if written.removed:
            statements.append(self._removal(written))
        for table, columns, rows in written.insertions(without_shared_data):
            if table not in packers:
                before += self.insert(table, columns, rows)
            elif rows:
                if table == "tasks_app_countdelta":
                    rows = [(0, *row) for row in rows]
                statements.append(Statement(INSERTION[table], [packers[table].packed(rows)]))
        yield Unread([*before, *([_at_once(statements)] if statements else [])])

    def _removal(self, written: Written) -> Statement:
        try:
            places = '","'.join([written.places[task_id] for task_id in written.removed])
        except KeyError:  # Some were not locked by the plain look.
            return super()._removal(written)
        return Statement(REMOVAL, [f'{{"{places}"}}'])


def _at_once(statements: Sequence[Statement]) -> Statement:
    """One statement that does all of these: each that is sent costs as much as what it does to a few rows."""
    *others, last = statements
    parts = ", ".join([f"part{number} AS ({sql})" for number, (sql, _) in enumerate(others)])
    parameters = [each for statement in statements for each in statement.parameters]
    return Statement(f"WITH {parts} {last.sql}", parameters) if others else last


def row_packers_of(rows: Iterable[Row]) -> Mapping[str, RowPacker] | None:
    """For the tables that ROW_TYPES tells of. None where one has other columns than this code, as after an upgrade."""
    columns: dict[str, list[Column]] = defaultdict(list)
    row_types: dict[str, int] = {}
    for table, row_type, name, type_name, is_filled in rows:
        row_types[table] = row_type
        columns[table].append(Column(name, type_name, is_filled))
    try:
        return {
            table: RowPacker(row_types[table], columns[table], names, VARIED) for table, names in PACKED_TABLES.items()
        }
    except LookupError:
        return None
