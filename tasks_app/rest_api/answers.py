"""Answers of tasks as JSON: small ones at once, large ones in pieces, each made in a thread when its turn comes.

Data that is kept apart from its task is read on the way, so that an answer takes little memory whatever its size.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from msgspec import UNSET
from msgspec.structs import replace
from rest_framework.renderers import BaseRenderer
from rest_framework.response import Response
from rest_framework.views import exception_handler

from taskstore.errors import (
    CommitRefused,
    Forbidden,
    InvalidInput,
    JobUnfinished,
    KeyReused,
    LimitExceeded,
    NotHeld,
    TooManyReaders,
)
from taskstore.types.history import Failure, Problems
from taskstore.types.progress import Progress
from taskstore.types.tasks import Duplicate as DuplicateAnswer
from taskstore.types.tasks import Outcome, Task

from ..core.meters import meters
from ..core.operations import Apart, Duplicate, TaskRecord, told_task
from ..core.room import Told
from ..database.outage import RETRY_AFTER_S, translated
from ..database.transaction import waited_place
from ..models import Task as StoredTask
from ..offload.threads import going_on, in_a_database_thread, paced, streamed
from ..reading.parts import as_json, joined

ENCODER = msgspec.json.Encoder()


class JSONRenderer(BaseRenderer):
    """JSON in UTF-8, of the types in `answers`. Integers are exact to 64 bits."""

    media_type = "application/json"
    format = "json"
    charset = None  # It is UTF-8 by definition.

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return b"" if data is None else ENCODER.encode(data)


MOST_IN_DETAIL = 3
LONGEST_PATH = 300  # Names of fields come from the request, and may be as long as it.


# What the verbs refuse they count themselves.
REASONS = {400: "invalid", 401: "unauthenticated", 403: "forbidden", 413: "limit", 429: "throttled"}


def answer_to(error: Exception, context: dict[str, Any]) -> Response | None:
    """The answer to what a view raised; None, which raises it on, when nobody expected it."""
    answer = _answer_to(error, context)
    if answer is not None and answer.status_code in REASONS:
        meters.add(REASONS[answer.status_code])
    return answer


def _answer_to(error: Exception, context: dict[str, Any]) -> Response | None:
    match error:
        case CommitRefused():
            # Not 409: clients of the original take every other status for a broken server.
            return Response(Outcome(error=error.refusal))
        case Forbidden():
            return Response(Failure(detail=printable(str(error)), code=error.code), status=403)
        case KeyReused() | JobUnfinished() | NotHeld():
            return Response(Failure(detail=str(error), code=error.code), status=409)
        case TooManyReaders():
            failure = Failure(detail=str(error), code=error.code)
            return Response(failure, status=429, headers={"Retry-After": str(RETRY_AFTER_S)})
        case LimitExceeded():
            return Response(_problems(error), status=413)
        case InvalidInput():
            return Response(_problems(error), status=400)
    if told := translated(error):
        failure = Failure(detail=str(told), code=told.code)
        return Response(failure, status=503, headers={"Retry-After": str(RETRY_AFTER_S)})
    response = exception_handler(error, context)
    if response is not None:
        response.data = Failure(detail=printable(str(response.data["detail"])))
    return response


def _problems(error: InvalidInput) -> Problems:
    errors = {printable(path)[:LONGEST_PATH] or "body": texts for path, texts in error.fields.items()}
    sentences = [f"{path}: {'; '.join(texts)}" for path, texts in errors.items()]
    more = len(sentences) - MOST_IN_DETAIL
    return Problems(
        detail="; ".join(sentences[:MOST_IN_DETAIL]) + (f"; and {more} more" if more > 0 else ""), errors=errors
    )


def printable(text: str) -> str:
    """The text as it can be written in UTF-8: what comes from the request may hold lone surrogates."""
    return text.encode(errors="backslashreplace").decode()


AT_ONCE = 250  # Tasks.
BYTES_AT_ONCE = 2**20

Body = bytes | AsyncGenerator[bytes]


async def outcome_of(tasks: Sequence[TaskRecord], before: bytes = b"") -> Body:
    """The answer to a claim or an update; `before`: other members of it."""
    if not is_long(tasks):
        whole = encoded(tasks)
        return whole.replace(b"{", b"{" + before, 1) if before else whole
    pieces = _outcome(tasks, before)
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


def _outcome(tasks: Sequence[TaskRecord], before: bytes) -> Iterator[bytes]:
    more = b""
    if isinstance(tasks, Told):
        more += b',"truncated":true' if tasks.is_truncated else b""
        more += b',"gone":%b' % ENCODER.encode(tasks.gone) if tasks.gone else b""
    return pieces_of(b'{%b"tasks":[' % before, _each_once(tasks), b'],"error":null%b}' % more)


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
