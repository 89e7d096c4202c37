"""A group of any size as one JSON list, in memory that does not grow with it.

Up to 100 000 tasks are read in one statement, which sees one moment, into a temporary file, and sent
from there; beyond, further such pages follow. So a slow reader holds a file, no old snapshot,
which would keep the database from cleaning up behind the workers, and no connection to the database.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain
from tempfile import SpooledTemporaryFile
from threading import BoundedSemaphore
from typing import IO

from django.db import connections

from ..managers import TaskQuerySet
from ..models import Task
from ..wire.tasks import TaskAnswer
from .rendering import ENCODER

SNAPSHOT_TASKS = 100_000
IN_MEMORY_BYTES = 2**18
PIECE_BYTES = 2**16
SHORT = 1_000  # Tasks. A list of so few is read at once, whoever else reads.
PAGES_AT_ONCE = 2

# Who asks for many long lists at once, and may read none of them, gets them one after the other: read all at once they
# would take the memory, and the connections that others need.
turns = BoundedSemaphore(PAGES_AT_ONCE)


def listing(tasks: TaskQuerySet, limit: int | None = None) -> Iterator[bytes]:
    """The tasks as a JSON list, in pieces. The longest available first; at most `limit`.

    The first snapshot is read before this returns, so that a database which can't be
    reached is an error answer and not a list that breaks off.
    """
    pieces = _pieces(tasks, limit)
    return chain([next(pieces)], pieces)


def _pieces(tasks: TaskQuerySet, limit: int | None) -> Iterator[bytes]:
    written, last = 0, None
    while True:
        most = SNAPSHOT_TASKS if limit is None else min(SNAPSHOT_TASKS, limit - written)
        with SpooledTemporaryFile(IN_MEMORY_BYTES) as page:
            with _turn(most, tasks.db):
                found, last = _write(tasks.after(last) if last else tasks, most, page, is_first=not written)
            written += found
            is_end = found < most or written == limit
            if is_end:
                page.write(b"]")
            page.seek(0)
            while piece := page.read(PIECE_BYTES):
                yield piece
        if is_end:
            return


@contextmanager
def _turn(most: int, using: str) -> Iterator[None]:
    """No connection is held before it, nor when the page is there, unless it is the caller's own."""
    _let_go(using)
    with turns if most > SHORT else nullcontext():
        yield
    _let_go(using)


def _let_go(using: str) -> None:
    if not connections[using].in_atomic_block:
        connections[using].close()


def _write(tasks: TaskQuerySet, most: int, page: IO[bytes], *, is_first: bool) -> tuple[int, Task | None]:
    """Write up to `most` tasks; return how many there were, and the last one."""
    separator = b"[" if is_first else b","
    found, task = 0, None
    for task in tasks[:most].of_one_moment():
        page.write(separator)
        page.write(ENCODER.encode(TaskAnswer.of(task)))
        separator = b","
        found += 1
    if is_first and not found:
        page.write(b"[")
    return found, task
