"""Answers of tasks as JSON: small ones at once, large ones in pieces, each made in a thread when its turn comes.

Data that is kept apart from its task is read on the way, so that an answer takes little memory whatever its size.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping, Sequence
from typing import cast

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from msgspec import UNSET
from msgspec.structs import replace

from taskstore.errors import LimitExceeded
from taskstore.types.progress import Progress
from taskstore.types.tasks import Duplicate as DuplicateAnswer
from taskstore.types.tasks import Outcome, Task

from ..core.operations import Apart, Duplicate, TaskRecord, told_task
from ..core.room import Told
from ..database.room import waited_place
from ..models import Task as StoredTask
from ..offload.pieces import going_on, paced, streamed
from ..offload.threads import in_a_database_thread
from ..reading.parts import as_json, joined
from .errors import ENCODER, JSONRenderer

AT_ONCE = 250  # Tasks.
BYTES_AT_ONCE = 2**20

Body = bytes | AsyncGenerator[bytes]


async def outcome_of(tasks: Sequence[TaskRecord]) -> Body:
    """The answer to a claim or an update."""
    if not is_long(tasks):
        return encoded(tasks)
    pieces = _outcome(tasks)
    if not isinstance(tasks, Told):
        return await in_a_database_thread(lambda: b"".join(pieces))
    # What goes wrong with the first piece can be told.
    first = await in_a_database_thread(next, pieces)
    return paced(going_on([first], pieces), in_a_database_thread, tasks.place)


def is_long(tasks: Sequence[TaskRecord]) -> bool:
    """Whether the event loop can't wait until so many tasks, or such large ones, are encoded."""
    if isinstance(tasks, Told) or len(tasks) > AT_ONCE:
        return True
    size = 0
    for task in tasks:
        if isinstance(task.data, Apart):
            return True
        size += len(task.data)
    return size > BYTES_AT_ONCE


def encoded(tasks: Sequence[TaskRecord]) -> bytes:
    # Records, and the bytes at once: models and a Response that DRF renders cost as much again.
    return ENCODER.encode(Outcome(tasks=tuple(map(answer_in_place_of, _each_once(tasks)))))


def _outcome(tasks: Sequence[TaskRecord]) -> Iterator[bytes]:
    is_truncated = isinstance(tasks, Told) and tasks.is_truncated
    end = b'],"error":null%b}' % (b',"truncated":true' if is_truncated else b"")
    return pieces_of(b'{"tasks":[', _each_once(tasks), end)


def _each_once(tasks: Sequence[TaskRecord]) -> Iterator[TaskRecord]:
    """The tasks of an answer. The data of a duplicate that is there already is not told again."""
    seen = set[int]()
    for task in tasks:
        if isinstance(task, Duplicate) and task.id in seen and not task.ending:
            task = task._replace(data=b"")
            task.is_told = True
        seen.add(task.id)
        yield task


def answer_in_place_of(task: TaskRecord) -> Task:
    """Return a task of an answer as it is sent: less than a task, if it is a duplicate that can't be shown."""
    if isinstance(task, Duplicate) and (task.ending or not task.id):
        unseen = DuplicateAnswer(id=task.id or None, ending=task.ending or UNSET)
        return cast("Task", unseen)  # The client fills in the rest.
    return told_task(task, with_data=not (isinstance(task, Duplicate) and task.is_told))


def pieces_of(
    start: bytes, tasks: Iterable[TaskRecord | None], end: bytes, progress: Mapping[int, Progress] | None = None
) -> Generator[bytes]:
    """The tasks between start and end, with commas, in pieces. One that is not there is `null`."""
    return joined(_parts(start, tasks, end, progress or {}))


def _parts(
    start: bytes, tasks: Iterable[TaskRecord | None], end: bytes, progress: Mapping[int, Progress]
) -> Iterator[bytes]:
    nothing = Duplicate.without_task()
    yield start
    comma = b""
    for task in StoredTask.objects.with_data(nothing if task is None else task for task in tasks):
        yield comma
        comma = b","
        if task is nothing:
            yield b"null"
        elif isinstance(task, Duplicate) and (task.ending or not task.id or task.is_told):
            yield ENCODER.encode(answer_in_place_of(task))
        else:
            answer = told_task(task, with_data=False)
            yield from as_json(
                replace(answer, data_type=task.data_type, progress=progress.get(task.origin)), task.whole_data
            )
    yield end


# ---- Sending


def response_of(request: HttpRequest, pieces: Iterator[bytes], size: int) -> HttpResponseBase:
    """The response of a view in a thread; `size`: how many bytes it has, roughly."""
    place = waited_place(size)
    if size <= BYTES_AT_ONCE:
        return HttpResponse(b"".join(pieces), content_type=JSONRenderer.media_type)
    first = next(pieces)
    return streamed(request, going_on([first], pieces), JSONRenderer.media_type, place)


def refuse_too_large(field: str, size: int, most: int) -> None:
    """Raise LimitExceeded when an answer would have too many bytes."""
    if size > most:
        text = f"would make a response of {size} bytes, more than TASKSTORE_MAX_ANSWER_BYTES ({most}): ask for fewer"
        raise LimitExceeded({field: [f"{text} at once"]})
