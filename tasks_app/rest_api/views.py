"""The views that read tasks and groups."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from threading import BoundedSemaphore

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore import endpoints
from taskstore.errors import LimitExceeded
from taskstore.types import sentences
from taskstore.types.requests import ProgressRequest, TasksRequest

from ..control.progress import progress_of, report
from ..core.operations import EVERY_GROUP, GroupScope, TaskRecord, as_seen
from ..core.room import size_of_task
from ..database.room import most_bytes
from ..managers import TaskQuerySet, limits
from ..models import Task
from ..offload.pieces import going_on, let_go, streamed
from ..reading import history
from ..reading.counts import stats_in_pages
from ..reading.exporting import streamed_long
from ..writer.totals import PAGE_GROUPS
from . import bodies
from .answers import pieces_of, refuse_too_large, response_of
from .base import View, serves
from .errors import ENCODER, JSONRenderer
from .search import integer, integers, labels_in, limit_in, query_of, refuse_broken_path, switch

SNAPSHOT_TASKS = 100_000
STATS_AT_ONCE = 2

turns = BoundedSemaphore(STATS_AT_ONCE)


def listing(
    request: Request, tasks: TaskQuerySet, limit: int | None = None, scope: GroupScope = EVERY_GROUP
) -> StreamingHttpResponse:
    """The tasks as a JSON list. The longest available first; at most `limit`.

    Its beginning is read before this returns, so that a database which can't be
    reached is an error answer and not a list that breaks off. Raises TooManyReaders.
    """
    pieces = pieces_of(b"[", (as_seen(task, scope) for task in _records(tasks, limit)), b"]")
    return streamed_long(request._request, pieces, JSONRenderer.media_type)


def _records(tasks: TaskQuerySet, limit: int | None) -> Iterator[TaskRecord]:
    """The tasks as of one moment, as long as they are not too many: consecutive parts then."""
    found, last = 0, None
    while True:
        most = SNAPSHOT_TASKS if limit is None else min(SNAPSHOT_TASKS, limit - found)
        before = found
        part = tasks.after(last) if last else tasks
        for last in part[:most].records():
            found += 1
            yield last
        if found - before < most or found == limit:
            return


@contextmanager
def _turn(most: int, using: str) -> Iterator[None]:
    """No connection is held before it, nor when the page is there, unless it is the caller's own."""
    let_go(using)
    with turns if most else nullcontext():
        yield
    let_go(using)


def in_numbers(scope: GroupScope) -> Generator[bytes]:
    """The stats in pieces, each of some thousand groups. The first is made before this returns, as of `listing`."""
    pieces = _pieces_of_stats(scope)
    return going_on([next(pieces)], pieces)


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
        return listing(self.request, tasks, limit, self.scope())


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
    def get(self, request: Request, id: str) -> HttpResponseBase:
        task_id, scope = integer("id", id), self.scope()
        tasks = Task.objects.read([task_id], scope)
        if not tasks:
            told = history.epitaph_of(task_id, scope)
            raise NotFound(told or f"Task {task_id} does not exist{history.doubt_about(task_id)}.")
        return response_of(request, pieces_of(b"", tasks, b"", progress_of(tasks)), size_of_task(tasks[0]))


class TasksByPath(View):
    @serves(endpoints.TASKS)
    def get(self, request: Request, ids: str) -> HttpResponseBase:
        return found(request, integers("ids", ids), self.scope())


class TasksByBody(View):
    @serves(endpoints.TASKS_BY_BODY)
    def post(self, request: Request) -> HttpResponseBase:
        return found(request, bodies.read(request, TasksRequest).ids, self.scope())


class History(View):
    @serves(endpoints.HISTORY)
    def get(self, request: Request, id: str) -> Response:
        task_id = integer("id", id)
        found = history.history_of(task_id, self.scope())
        if found is None:
            raise NotFound(f"Task {task_id} does not exist{history.doubt_about(task_id)}.")
        return Response(found)


def found(request: Request, ids: Sequence[int], scope: GroupScope) -> HttpResponseBase:
    most = limits().changes
    if len(ids) > most:
        raise LimitExceeded({"ids": [sentences.at_most(most, "ids", len(ids))]})
    tasks = {task.id: task for task in Task.objects.read([*set(ids)], scope)}
    sizes = {task.id: size_of_task(task) for task in tasks.values()}
    size = sum(sizes.get(task_id, len("null,")) for task_id in ids)
    refuse_too_large("ids", size, most_bytes())
    pieces = pieces_of(b"[", map(tasks.get, ids), b"]", progress_of(tasks.values()))
    return response_of(request, pieces, size)


class Progress(View):
    @serves(endpoints.PROGRESS)
    def put(self, request: Request, id: str) -> Response:
        task_id, scope, asked = integer("id", id), self.scope(), bodies.read(request, ProgressRequest)
        reported = report(task_id, owner=asked.clientid, done=asked.done, text=asked.text, scope=scope)
        if reported is None:
            told = history.epitaph_of(task_id, scope)
            raise NotFound(told or f"Task {task_id} does not exist{history.doubt_about(task_id)}.")
        return Response(reported)
