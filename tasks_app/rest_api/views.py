"""The views that read tasks and groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from tempfile import SpooledTemporaryFile
from threading import BoundedSemaphore
from typing import IO

from django.db import connections
from django.http import StreamingHttpResponse
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore import endpoints
from taskstore.errors import LimitExceeded
from taskstore.types import sentences
from taskstore.types.requests import ProgressRequest, TasksRequest
from taskstore.types.tasks import answer_of

from ..control.progress import progress_of, report
from ..core.operations import GroupScope
from ..managers import TaskQuerySet, limits
from ..models import Task
from ..reading import history
from ..reading.counts import stats_in_pages
from ..reading.exporting import streamed
from ..writer.totals import PAGE_GROUPS
from . import bodies
from .base import View, serves
from .errors import ENCODER, JSONRenderer
from .search import integer, integers, labels_in, limit_in, query_of, refuse_broken_path, switch

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
        page.write(ENCODER.encode(answer_of(task)))
        separator = b","
        found += 1
    if is_first and not found:
        page.write(b"[")
    return found, task


def in_numbers(scope: GroupScope) -> Iterator[bytes]:
    """The stats in pieces, each of some thousand groups. The first is made before this returns, as of `listing`."""
    pieces = _pieces_of_stats(scope)
    return chain([next(pieces)], pieces)


def _pieces_of_stats(scope: GroupScope) -> Iterator[bytes]:
    pages, before = stats_in_pages(scope), b'{"at":%d,"groups":[' % Task.objects.now_ms()
    most = 0  # The first page waits for nobody: most stores have one only.
    while True:
        with _turn(most, Task.objects.db):
            page = next(pages, None)
        most = PAGE_GROUPS
        if page is None:
            yield b"]}" if before == b"," else before + b"]}"
            return
        if page:
            groups = [numbers.as_answer(group) for group, numbers in page.items()]
            yield before + ENCODER.encode(groups)[1:-1]
            before = b","


class Groups(View):
    @serves(endpoints.GROUPS)
    def get(self, request: Request) -> Response:
        query_of(request, endpoints.GROUPS)
        return Response(Task.objects.groups(self.scope()))


class Stats(View):
    @serves(endpoints.STATS)
    def get(self, request: Request) -> StreamingHttpResponse:
        query_of(request, endpoints.STATS)
        return streamed(request._request, in_numbers(self.scope()), JSONRenderer.media_type)


class Listing(View):
    def tasks_of(self, name: str, query: Mapping[str, str]) -> StreamingHttpResponse:
        limit, owned = limit_in(query), switch("owned", query.get("owned", "no"))
        self.must_reach(name)
        tasks = Task.objects.group(name, owned=owned)
        for label in labels_in(self.request):
            tasks = tasks.bearing(*label)
        pieces = listing(tasks, limit)
        return streamed(self.request._request, pieces, JSONRenderer.media_type)


class Group(Listing):
    @serves(endpoints.GROUP_TASKS)
    def get(self, request: Request, name: str) -> StreamingHttpResponse:
        refuse_broken_path(request)
        return self.tasks_of(name, query_of(request, endpoints.GROUP_TASKS))


class GroupByQuery(Listing):
    @serves(endpoints.GROUP_BY_QUERY)
    def get(self, request: Request) -> StreamingHttpResponse | Response:
        query = query_of(request, endpoints.GROUP_BY_QUERY)
        if "name" in query:
            return self.tasks_of(query["name"], query)
        return Response(Task.objects.groups(self.scope()))


class OneTask(View):
    @serves(endpoints.TASK)
    def get(self, request: Request, id: str) -> Response:
        task_id, scope = integer("id", id), self.scope()
        [task] = Task.objects.find([task_id], scope)
        if task is None:
            told = history.epitaph_of(task_id, scope)
            raise NotFound(told or f"Task {task_id} does not exist{history.doubt_about(task_id)}.")
        return Response(answer_of(task, progress=progress_of([task]).get(task.origin)))


class TasksByPath(View):
    @serves(endpoints.TASKS)
    def get(self, request: Request, ids: str) -> Response:
        return found(integers("ids", ids), self.scope())


class TasksByBody(View):
    @serves(endpoints.TASKS_BY_BODY)
    def post(self, request: Request) -> Response:
        return found(bodies.read(request, TasksRequest).ids, self.scope())


class History(View):
    @serves(endpoints.HISTORY)
    def get(self, request: Request, id: str) -> Response:
        task_id = integer("id", id)
        found = history.history_of(task_id, self.scope())
        if found is None:
            raise NotFound(f"Task {task_id} does not exist{history.doubt_about(task_id)}.")
        return Response(found)


def found(ids: Sequence[int], scope: GroupScope) -> Response:
    most = limits().changes
    if len(ids) > most:
        raise LimitExceeded({"ids": [sentences.at_most(most, "ids", len(ids))]})
    tasks = Task.objects.find(ids, scope)
    progress = progress_of(filter(None, tasks))
    return Response([task and answer_of(task, progress=progress.get(task.origin)) for task in tasks])


class Progress(View):
    @serves(endpoints.PROGRESS)
    def put(self, request: Request, id: str) -> Response:
        task_id, scope, asked = integer("id", id), self.scope(), bodies.read(request, ProgressRequest)
        reported = report(task_id, owner=asked.clientid, done=asked.done, text=asked.text, scope=scope)
        if reported is None:
            told = history.epitaph_of(task_id, scope)
            raise NotFound(told or f"Task {task_id} does not exist{history.doubt_about(task_id)}.")
        return Response(reported)
