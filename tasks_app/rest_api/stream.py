"""A group of any size as one JSON list, in memory that does not grow with it.

Up to 100 000 tasks are read in one statement, which sees one moment, into a temporary file, and sent
from there; beyond, further such pages follow. So a slow reader holds a file, and no old snapshot,
which would keep the database from cleaning up behind the workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from tempfile import SpooledTemporaryFile
from typing import IO

from ..managers import TaskQuerySet
from ..models import Task
from .answers import TaskAnswer
from .rendering import ENCODER

SNAPSHOT_TASKS = 100_000
IN_MEMORY_BYTES = 2**20
PIECE_BYTES = 2**16


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
