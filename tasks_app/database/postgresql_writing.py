"""The one statement by which PostgreSQL writes a batch, and arrays of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from taskstore.types.tasks import FIELDS, json_size

from ..conf import retention
from ..core.tally import COUNTERS
from .batch import Written
from .rows import (
    ANSWERED_COLUMNS,
    COLUMNS,
    DELTA_COLUMNS,
    ENDED_COLUMNS,
    ITEM_COLUMNS,
    KEY_COLUMNS,
    OWN_ID,
    TAKEN_COLUMNS,
    Row,
    Statement,
    quoted,
    row_of,
)

Array = Callable[[str, Sequence[Any]], Any]  # Of a type's name and values, the parameter that holds them.

# The types of columns that are not bigint.
POSTGRESQL_TYPES: Mapping[str, str] = {field.name: field.column for field in FIELDS} | dict.fromkeys(
    (
        *("ending", "operator", "reason", "key", "digest", "answer", "ids", "outcome", "why", "ended_in"),
        *("unique_group", *COUNTERS),
    ),
    "text",
)

# What is written in place of a draft's value.
DRAFTED: Mapping[str, str] = {
    "origin": "coalesce(nullif(origin, 0), id)",
    "data": f"CASE WHEN payload = {OWN_ID} THEN '' ELSE data END",
    "payload": f"CASE WHEN payload = {OWN_ID} THEN id ELSE payload END",
}


def arrays(columns: Sequence[str]) -> str:
    return ", ".join(f"%s::{POSTGRESQL_TYPES.get(name, 'bigint')}[]" for name in columns)


IS_LISTED = "id = ANY(%s::bigint[])"

# The parts of the statement that writes a batch. Drafts are numbered first, all others may ask for the numbers:
# by their place in an array, as a join would compare each with each, hash and merge joins being switched off.
DRAFTS = f"""
    drafts AS MATERIALIZED (
        SELECT nextval('tasks_app_ids') AS id, place, {", ".join(quoted(COLUMNS[1:]))}
        FROM unnest({arrays(COLUMNS[1:])}) WITH ORDINALITY AS draft({", ".join(quoted(COLUMNS[1:]))}, place)
    )
"""
REMOVED = f"removed AS (DELETE FROM tasks_app_task WHERE {IS_LISTED})"
TRAIL = f"""
    trail AS (
        INSERT INTO tasks_app_endedtask ({", ".join(quoted(ENDED_COLUMNS))})
        SELECT {", ".join(quoted(ENDED_COLUMNS[:-1]))}, ids[successor + 1]
        FROM unnest({arrays(ENDED_COLUMNS)}) AS gone({", ".join(quoted(ENDED_COLUMNS))}),
            (SELECT array_agg(id ORDER BY place) AS ids FROM drafts) AS numbered
    )
"""
TRAIL_OF_ENDS = f"""
    trail AS (
        INSERT INTO tasks_app_endedtask ({", ".join(quoted(ENDED_COLUMNS))})
        SELECT * FROM unnest({arrays(ENDED_COLUMNS)})
    )
"""
KEPT = f"""
    kept AS (
        INSERT INTO tasks_app_keptanswer (key, digest, at_ms, answer, ids)
        SELECT key, digest, at_ms, answer, array_to_string(ids[first + 1:last], ',')
        FROM unnest({arrays(ANSWERED_COLUMNS)}) AS answered({", ".join(ANSWERED_COLUMNS)}),
            (SELECT array_agg(id ORDER BY place) AS ids FROM drafts) AS numbered
    )
"""
KEPT_ALONE = f"""
    kept AS (
        INSERT INTO tasks_app_keptanswer (key, digest, at_ms, answer, ids)
        SELECT key, digest, at_ms, answer, ''
        FROM unnest({arrays(ANSWERED_COLUMNS)}) AS answered({", ".join(ANSWERED_COLUMNS)})
    )
"""
COUNTED = f"""
    counted AS (
        INSERT INTO tasks_app_countdelta ({", ".join(quoted(DELTA_COLUMNS))})
        SELECT * FROM unnest({arrays(DELTA_COLUMNS)})
    )
"""
ITEMISED = f"""
    itemised AS (
        INSERT INTO tasks_app_bulkitem ({", ".join(quoted(ITEM_COLUMNS))})
        SELECT * FROM unnest({arrays(ITEM_COLUMNS)})
    )
"""
STORED = f"""
    stored AS (
        INSERT INTO tasks_app_payload (id, data, size)
        SELECT id, data, (%s::bigint[])[place] FROM drafts WHERE payload = {OWN_ID}
    )
"""
HELD = f"""
    held AS (
        INSERT INTO tasks_app_keptpayload (id, until_ms, gone)
        SELECT id, %s::bigint, 0 FROM drafts WHERE payload = {OWN_ID}
    )
"""
# After whatever was in the way has been deleted: another process that takes the same key meanwhile, against the locks
# of keys, is an error after which the batch is done again.
TAKEN = f"""
    taken AS (
        INSERT INTO tasks_app_uniquekey ({", ".join(quoted(KEY_COLUMNS))})
        SELECT asked."group", asked.key, coalesce(nullif(drafts.origin, 0), drafts.id), asked.until_ms, 0, '', ''
        FROM unnest({arrays(TAKEN_COLUMNS)}) AS asked("group", key, until_ms, number), drafts
        WHERE drafts.place = asked.number + 1
    )
"""
INSERTION = f"""
    INSERT INTO tasks_app_task ({", ".join(quoted(COLUMNS))})
    SELECT id, {", ".join(DRAFTED.get(name, f'"{name}"') for name in COLUMNS[1:])}
    FROM drafts
    ORDER BY place
    RETURNING id
"""


def statement_of(written: Written, array: Array) -> Statement:
    """One statement, so that the ids cost no trip of their own and the trail knows them. It returns the ids."""
    parts = list(_parts(written, array))
    sql = f"WITH {', '.join(sql for sql, _ in parts)} {INSERTION if written.drafts else 'SELECT WHERE false'}"
    return Statement(sql, [value for _, values in parts for value in values])


def _parts(written: Written, array: Array) -> Iterator[tuple[str, Sequence[Any]]]:
    """What the statement consists of, with the parameters: only what there is, as also an empty part costs time."""
    if written.drafts:
        yield DRAFTS, _values(COLUMNS[1:], [row_of(draft)[1:] for draft in written.drafts], array)
    if written.removed:
        yield REMOVED, [array("bigint", written.removed)]
    if written.ended:
        yield TRAIL if written.drafts else TRAIL_OF_ENDS, _values(ENDED_COLUMNS, written.ended, array)
    if written.kept:
        yield KEPT if written.drafts else KEPT_ALONE, _values(ANSWERED_COLUMNS, written.kept, array)
    if written.deltas:
        yield COUNTED, _values(DELTA_COLUMNS, written.deltas, array)
    if written.items:
        yield ITEMISED, _values(ITEM_COLUMNS, written.items, array)
    if any(draft.payload == OWN_ID for draft in written.drafts):
        sizes = [json_size(draft.whole_data) if draft.payload == OWN_ID else 0 for draft in written.drafts]
        yield STORED, [array("bigint", sizes)]
        if written.kept:
            yield HELD, [written.now_ms + retention.key_ms()]
    if written.taken:
        yield TAKEN, _values(TAKEN_COLUMNS, written.taken, array)


def insertion_of(table: str, columns: Sequence[str], rows: Sequence[Row], clause: str, array: Array) -> Statement:
    sql = f"""
        INSERT INTO {table} ({", ".join(quoted(columns))})
        SELECT * FROM unnest({arrays(columns)})
        {clause}
    """
    return Statement(sql, _values(columns, rows, array))


def _values(columns: Sequence[str], rows: Sequence[Row], array: Array) -> list[Any]:
    values = zip(*rows, strict=True) if rows else [()] * len(columns)
    return [array(POSTGRESQL_TYPES.get(name, "bigint"), column) for name, column in zip(columns, values, strict=True)]
