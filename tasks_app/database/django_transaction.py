"""Within Django: the caller's transaction, or one of our own.

`using` is the alias of a database; empty: the one to which the project's routers lead for the store.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from django.apps import apps
from django.db import Error, connections, router, transaction

from taskstore.errors import CommitUnknown, StoreBusy, StoreUnavailable, TaskStoreError

from ..core.meters import meters
from ..core.operations import Apart, Operation, Supply, TaskRecord
from .dialect import UNCONFIRMED, Again, Dialect
from .outage import is_away, reason_of, takes_no_changes
from .postgresql import PostgreSQL
from .rows import Row, record_of
from .sqlite import SQLite
from .transaction import transact
from .transaction_values import Undecided

PORTION_BYTES = 2 * 2**20
LEAST_PATIENCE_S = 0.5
LEAST_POOL = 4  # Connections of psycopg's pool where the settings name no number.

DIALECTS: Mapping[str, type[Dialect]] = {"postgresql": PostgreSQL, "sqlite": SQLite}


def run(
    operation: Operation,
    using: str = "",
    since_s: float | None = None,
    told: Callable[[Supply], None] = lambda supply: None,
) -> list[TaskRecord]:
    """Do the operation in a transaction, which joins the caller's if there is one. Returns its new tasks.

    `since_s`: from when on the patience counts, by the clock that never goes back (None: now). `told` hears within the
    transaction what waiting claims may take once it is committed.

    Raises what it is refused for, StoreBusy when rows stay locked, StoreUnavailable when the database can't
    be reached, CommitUnknown when it did not confirm the COMMIT.
    """
    dialect = dialect_of(using)
    if since_s is not None:
        dialect.began_s = since_s
    elif _thread.since_s is not None:
        # What went before may have taken long without any wait.
        dialect.began_s = max(_thread.since_s, dialect.began_s - dialect.patience_s + LEAST_PATIENCE_S)
    for pause_s in _growing_pauses():
        try:
            decision = _transaction(operation, dialect, told)
        except (Again, Error) as error:
            if takes_no_changes(error):
                leave(dialect.using)
            if not (isinstance(error, Again) or dialect.is_contention(error)):
                if not is_away(error):
                    raise
                raise StoreUnavailable(f"{reason_of(error)}: try again later") from error
            if dialect.left_s < pause_s:
                why = error.args[0] if isinstance(error, Again) and error.args else Undecided.LOCKED.value
                raise StoreBusy(why) from error
            time.sleep(pause_s)
            continue
        if isinstance(decision, TaskStoreError):
            raise decision
        return decision
    raise AssertionError("the pauses never end")


def _transaction(
    operation: Operation, dialect: Dialect, told: Callable[[Supply], None]
) -> list[TaskRecord] | TaskStoreError:
    """Returns why it was refused, instead of raising that: the answer may be kept, which has to be committed."""
    is_ours = not connections[dialect.using].in_atomic_block
    is_written = False
    dialect.is_alone = is_ours
    try:
        with ExitStack() as stack:
            if is_ours:
                stack.enter_context(_place_to_wait(dialect))
                stack.enter_context(dialect.turn())
                stack.enter_context(dialect.confirmation())
            # Within the caller's transaction this is a savepoint, so that trying again lets go of the locks.
            stack.enter_context(transaction.atomic(using=dialect.using))
            if is_ours or _thread.since_s is not None:
                dialect.send(dialect.preparation([operation]))
            done = dialect.drive(transact([operation], dialect))
            [decision] = done.decisions
            if isinstance(decision, Undecided):
                raise Again(decision.value)
            transaction.on_commit(partial(meters.note_work, done.work), using=dialect.using)
            told(done.supply)
            is_written = True
        return decision
    except Error as error:
        if is_ours and is_written and is_away(error) and dialect.leaves_outcome_unknown(error):
            raise CommitUnknown(UNCONFIRMED) from error
        raise


def leave(using: str) -> None:
    """Close this thread's connection for good: the pool would hand it out again, to be refused by the same server."""
    if not connections[using].in_atomic_block:
        if connections[using].connection is not None:
            connections[using].connection.close()
        connections[using].close()


def _growing_pauses() -> Iterator[float]:
    pause_s = 0.001
    while True:
        # Random, so that two that ran into each other do not meet again.
        yield pause_s * random.uniform(0.5, 1.5)
        pause_s = min(pause_s * 2, 0.1)


def read(ids: Sequence[int], using: str = "") -> list[TaskRecord]:
    """The tasks of these ids that exist, in no particular order; without data that is kept apart."""
    dialect = dialect_of(using)
    return [record_of(row) for row in dialect.rows(*dialect.tasks_of(ids))] if ids else []


class HasData(Protocol):
    data: Any


TaskT = TypeVar("TaskT", bound=TaskRecord | HasData)


def with_data(tasks: Iterable[TaskT], using: str = "") -> Iterator[TaskT]:
    """Yield the tasks with their data. What is kept apart is read when its turn comes, some megabytes at once.

    Raises StoreBusy when a task has ended so long ago that its data is gone.
    """
    portion: list[TaskT] = []
    size = 0
    for task in tasks:
        if not portion and not isinstance(task.data, Apart):
            yield task
            continue
        task_size = task.data.size if isinstance(task.data, Apart) else len(task.data)
        if portion and size + task_size > PORTION_BYTES:
            yield from _with_data(portion, using)
            portion, size = [], 0
        portion.append(task)
        size += task_size
    yield from _with_data(portion, using)


def _with_data(tasks: Sequence[TaskT], using: str) -> Iterator[TaskT]:
    dialect = dialect_of(using)
    apart = {task.data.payload for task in tasks if isinstance(task.data, Apart)}
    if len(apart) == 1:
        found = {payload: data for payload in apart if (data := dialect.payload(payload)) is not None}
    else:
        found = dict(dialect.rows(*dialect.payloads(apart))) if apart else {}
    for task in tasks:
        if isinstance(task.data, Apart):
            if (data := found.get(task.data.payload)) is None:
                raise StoreBusy("a task ended while its data was read: try again")
            if isinstance(task, TaskRecord):
                task = task._replace(data=bytes(data))
            else:
                task.data = bytes(data)
        yield task


def rows_at_once(columns: Sequence[str], sql: str, parameters: Sequence[Any] = (), *, using: str = "") -> Sequence[Row]:
    """The rows of a query of many, with text and integers in these columns, in no particular order."""
    return dialect_of(using).rows_at_once(columns, sql, parameters)


def now_ms(using: str = "") -> int:
    """The time by the database's clock."""
    return dialect_of(using).now_ms()


def newest_id(using: str = "") -> int:
    """The largest id that was given out; 0 in a store that was never used."""
    dialect = dialect_of(using)
    [(newest,)] = dialect.rows(dialect.newest_id)
    return int(newest)


def reading(using: str = "") -> AbstractContextManager[Any]:
    """Context for a statement whose rows are read in parts."""
    return dialect_of(using).reading()


def bookkeeping(using: str = "") -> AbstractContextManager[Any]:
    """Context for writes that may be lost: they wait for no disk and no standby."""
    return dialect_of(using).bookkeeping()


def probe(using: str = "") -> None:
    """Raise what goes wrong when something is written, which is taken back at once."""
    dialect = dialect_of(using)
    with transaction.atomic(using=dialect.using):
        dialect.drive(dialect.probe())


def store_alias() -> str:
    """Return the alias of the database in which the store is."""
    alias: str = router.db_for_write(apps.get_model("tasks_app", "Task"))
    return alias


@contextmanager
def atomic(using: str = "") -> Iterator[None]:
    """Context or decorator: a transaction of the store's database, or a part of the caller's.

    In one of its own nothing waits for the locks of others longer than an operation does. Raises StoreBusy.
    """
    using = using or store_alias()
    if connections[using].in_atomic_block or connections[using].vendor not in DIALECTS:  # People may be elsewhere.
        with transaction.atomic(using=using):
            yield
        return
    dialect = dialect_of(using)
    try:
        with _place_to_wait(dialect), dialect.turn(), transaction.atomic(using=using):
            dialect.send(dialect.patience())
            _thread.since_s = dialect.began_s
            try:
                yield
            finally:
                _thread.since_s = None
    except (Again, Error) as error:
        if not (isinstance(error, Again) or dialect.is_contention(error)):
            raise
        raise StoreBusy(Undecided.LOCKED.value) from error


class Thread(threading.local):
    since_s: float | None = None  # When the transaction of `atomic` began in which it is.
    has_place = False


_thread = Thread()
_places: dict[str, threading.Semaphore] = {}  # By database.


@contextmanager
def _place_to_wait(dialect: Dialect) -> Iterator[None]:
    """Take one of the places of those who may wait for locks of others with a connection of the pool.

    They are fewer than the connections, so that the others are left to those who read. Raises StoreBusy.
    """
    places = _places_in(dialect.using)
    if places is None or _thread.has_place:
        yield
        return
    if not places.acquire(blocking=False):
        connections[dialect.using].close()  # For others, while this waits.
        if not places.acquire(timeout=max(0.0, dialect.left_s)):
            raise StoreBusy(Undecided.LOCKED.value)
    _thread.has_place = True
    try:
        yield
    finally:
        _thread.has_place = False
        places.release()


def _places_in(using: str) -> threading.Semaphore | None:
    """Return the places; None where connections are not limited."""
    pool = connections[using].settings_dict.get("OPTIONS", {}).get("pool")
    if not isinstance(pool, Mapping):
        return None
    most = pool.get("max_size") or pool.get("min_size") or LEAST_POOL
    return _places.setdefault(using, threading.Semaphore(max(1, most * 3 // 4)))


def dialect_of(using: str = "", *, waits: bool = True) -> Dialect:
    using = using or store_alias()
    return DIALECTS[connections[using].vendor](using, waits=waits)


def collation_of(connection: Any) -> str | None:
    """The collation that orders text by code point; None: the database's own."""
    dialect = DIALECTS.get(connection.vendor)  # Django's checks say what is wrong with any other database.
    return dialect.collation if dialect else None


def hurry(using: str = "") -> None:
    """This thread's connection waits a moment for others, and no longer: the process is about to end."""
    dialect = dialect_of(using)
    with connections[dialect.using].cursor() as cursor:
        for statement in dialect.hurry:
            cursor.execute(statement)
