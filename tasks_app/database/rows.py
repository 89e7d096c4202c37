"""Data that is too large to be written again with each successor: it is kept once, and successors share it."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import msgspec

from taskstore.types.tasks import FIELDS, Kept

from ..core.operations import Apart, HeldKey, TaskRecord, record_made_of
from ..core.tally import COUNTERS, NUMBERS

# From this size on, so that 10 000 changes of smaller data take no more than 200 MB. Measured with twenty claims and
# renewals: of 1 MB three to five times as many a second; of 20 kB the second row costs as much as it saves.
PAYLOAD_BYTES = 16 * 2**10


def whole_data(table: str) -> str:
    """An expression: the data of a task's row, wherever it is kept. `table`: its name or alias, as SQL."""
    shared = f"SELECT data FROM tasks_app_payload WHERE tasks_app_payload.id = {table}.payload"
    return f"CASE WHEN {table}.payload = 0 THEN {table}.data ELSE ({shared}) END"


# In its place: the size of the data, where it is kept apart. To decide about a task takes no more.
OWN_DATA = """
    CASE WHEN payload = 0 THEN data
    ELSE (SELECT size FROM tasks_app_payload WHERE tasks_app_payload.id = tasks_app_task.payload) END
"""

COLUMNS = TaskRecord._fields
# What the trail keeps of a task that ended; then how it ended.
KEPT_COLUMNS = tuple(field.name for field in FIELDS if field.in_trail)
KEPT_ANSWER_COLUMNS = ("key", "digest", "at_ms", "answer", "ids")
# By how much a batch changes the numbers of a group; the minute is of its time.
DELTA_COLUMNS = ("group", "minute", *NUMBERS, *COUNTERS)
# What a bulk operation has done to a task; then what it keeps of it for its undo.
ITEM_FIELDS = (
    *("available_at_ms", "leased_since_ms"),
    *(field.name for field in FIELDS if field.kept is not Kept.NOTHING and field.name != "origin"),
)
ITEM_COLUMNS = ("operation", "origin", "task", "outcome", "why", "commit", *ITEM_FIELDS, "unique_group")
ITEM_ORIGIN, ITEM_UNIQUE = ITEM_COLUMNS.index("origin"), ITEM_COLUMNS.index("unique")
# For the worker that held it.
CANCELLED_COLUMNS = ("id", "owner", "at_ms", "group")
# Until when data is kept, and whether it is needed no longer then (1) or only by a kept answer (0).
KEPT_PAYLOAD_COLUMNS = ("id", "until_ms", "gone")
# A key; a living holder's numbers of the end are 0 or empty.
KEY_COLUMNS = HeldKey._fields
# The chain that lets go of its key; then its last id, how it ended and where.
FREED_COLUMNS = ("origin", "ended", "ending", "ended_in")
# A task of a group with a limit, and how many were claimed of one at a time.
LIMITED_COLUMNS = ("id", "group", "value", "priority", "available_at_ms", "leased")
VALUE_COLUMNS = ("group", "value", "from_ms")
RECENT_COLUMNS = ("group", "value", "at_ms", "claims", "again_ms")
MINUTE_MS = 60_000
ENDING_COLUMNS = ("ended_at_ms", "ended_by_commit", "ended_by", "ending", "operator", "reason", "successor")
ENDED_COLUMNS = (*KEPT_COLUMNS, *ENDING_COLUMNS)

DATA = COLUMNS.index("data")
LABELS = COLUMNS.index("labels")
ID, ORIGIN = COLUMNS.index("id"), COLUMNS.index("origin")
MADE_BY_COMMIT, PAYLOAD = COLUMNS.index("made_by_commit"), COLUMNS.index("payload")
UNIQUE = COLUMNS.index("unique")


Row = tuple[Any, ...]
T = TypeVar("T")


class Statement(NamedTuple):
    """SQL with %s where the parameters go."""

    sql: str
    parameters: Sequence[Any] = ()


class Heavy(tuple[Statement, ...]):
    """Statements that read so much that the steps go on in a thread, not on the event loop."""


class Last(tuple[Statement, ...]):
    """The last statements of a transaction, whose rows nobody reads.

    The COMMIT may be sent with them, and the steps may go on to their end while these are carried out.
    """


# Says which statements to send together, and is told the rows that each gave.
Steps = Generator[Sequence[Statement], Sequence[Sequence[Row]], T]


def together(statements: Sequence[Statement], steps: Steps[T]) -> Steps[tuple[Sequence[Sequence[Row]], T]]:
    """Send the statements with the first ones of the steps. Returns their rows, and what comes of the steps."""
    first = next(steps)
    rows = yield [*statements, *first]
    number = len(statements)
    return rows[:number], (yield from _going_on(steps, rows[number:]))


def amid(steps: Steps[T]) -> Steps[T]:
    """The steps, after which the transaction goes on."""
    return (yield from _going_on(steps, None))


def _going_on(steps: Steps[T], answers: Sequence[Sequence[Row]] | None) -> Steps[T]:
    while True:
        try:
            statements = next(steps) if answers is None else steps.send(answers)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answers = yield statements if isinstance(statements, Heavy) else [*statements]


class Questions:
    """Statements that are sent together. Each is asked for a list, which has its rows once all are answered."""

    def __init__(self) -> None:
        self._asked: list[tuple[Statement, list[Row]]] = []

    def ask(self, statement: Statement) -> list[Row]:
        rows: list[Row] = []
        self._asked.append((statement, rows))
        return rows

    def answered(self) -> Steps[None]:
        answers = yield [statement for statement, _ in self._asked]
        for (_, rows), answer in zip(self._asked, answers, strict=True):
            rows.extend(answer)


# What of a task's row the trail keeps.
kept_of = itemgetter(*map(COLUMNS.index, KEPT_COLUMNS))


def numbered(draft: TaskRecord, commit: int, task_id: int) -> TaskRecord:
    """The draft as a task of this commit, with its id."""
    values = list(draft)
    values[ID] = task_id
    values[ORIGIN] = draft.origin or task_id
    values[MADE_BY_COMMIT] = commit
    if not draft.payload and len(draft.whole_data) >= PAYLOAD_BYTES:
        values[PAYLOAD] = task_id
    return record_made_of(values)


def without_shared_data(task: TaskRecord) -> TaskRecord:
    """The task as its row has it: data that successors share is kept apart."""
    return task._replace(data=b"") if task.payload else task


def row_of(task: TaskRecord) -> Row:
    """The values in the order of COLUMNS, with the labels as text."""
    labels = json.dumps(dict(task.labels)) if task.labels else "{}"
    task = without_shared_data(task)
    return (*task[:LABELS], labels, *task[LABELS + 1 :])


def record_of(row: Row) -> TaskRecord:
    labels = msgspec.json.decode(row[LABELS]) if row[LABELS] != "{}" else {}
    if payload := row[PAYLOAD]:
        size = row[DATA] or 0
        size = size if isinstance(size, int) else int.from_bytes(size)
        row = (*row[:DATA], Apart(payload, size), *row[DATA + 1 :])
    return record_made_of((*row[:LABELS], labels, *row[LABELS + 1 :]))


def quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]
