"""PostgreSQL as the writer uses it: rows are sent as binary arrays, and what is plain is done in sets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.operations import Operation, TaskRecord
from ..core.tally import COUNTERS
from .plain_sets import Sets
from .postgresql import PostgreSQL
from .postgresql_arrays import Column, RowPacker, packed
from .rows import (
    COLUMNS,
    DELTA_COLUMNS,
    ENDED_COLUMNS,
    KEPT_ANSWER_COLUMNS,
    Row,
    Statement,
    quoted,
    without_shared_data,
)

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

INSERTION = {table: f"INSERT INTO {table} SELECT * FROM unnest(%s::{table}[])" for table in PACKED_TABLES}
# The database gives these rows their ids.
INSERTION["tasks_app_countdelta"] = f"""
    INSERT INTO tasks_app_countdelta ({", ".join(quoted(DELTA_COLUMNS))})
    SELECT {", ".join(quoted(DELTA_COLUMNS))} FROM unnest(%s::tasks_app_countdelta[])
"""


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

    def row_of(self, task: TaskRecord) -> Row:
        return without_shared_data(task) if self.row_packers else super().row_of(task)

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row], clause: str = "") -> Sequence[Statement]:
        if not (self.row_packers and table in self.row_packers and rows):
            return super().insert(table, columns, rows, clause)
        if table == "tasks_app_countdelta":
            rows = [(0, *row) for row in rows]
        return [Statement(INSERTION[table], [self.row_packers[table].packed(rows)])]


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
