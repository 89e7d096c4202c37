"""Tasks and groups: read, search, export, import, and report progress."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from threading import BoundedSemaphore

from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from msgspec import UNSET
from rest_framework.exceptions import NotFound

from taskstore import endpoints
from taskstore.errors import LimitExceeded
from taskstore.types import requests, sentences
from taskstore.types.groups import ClientStatus, GroupPause, Pause
from taskstore.types.history import ExportRequest, History, SearchPage, SearchRequest
from taskstore.types.limits import GroupLimit, LimitsByGroup, LimitsRequest, ReasonByLimits
from taskstore.types.progress import Progress
from taskstore.types.tasks import NOBODY, Cancelled, Imported

from ..commands.progress import hear
from ..control import cancelling, pauses
from ..control import limits as group_limits
from ..control.progress import progress_of, report
from ..core.operations import EVERY_GROUP, Duplicate, GroupScope, TaskRecord, as_seen
from ..core.room import answer_size, fitting, size_of_task
from ..core.validation import refuse_owner
from ..database.transaction import most_bytes
from ..managers import TaskQuerySet, limits
from ..models import Client, Task
from ..offload.threads import by_the_helper, going_on, let_go, streamed
from ..reading import history, importing
from ..reading.clients import done_per_minute, seen
from ..reading.counts import stats_in_pages
from ..reading.exporting import Export, Format, download, streamed_long
from ..reading.pages import Cursor
from ..reading.search import grammar
from ..reading.search.finding import find
from ..wire.requests import ImportRequest, import_of
from ..wire.strict_json import is_light
from ..writer.totals import PAGE_GROUPS
from .answers import ENCODER, JSONRenderer, pieces_of, refuse_too_large, response_of
from .base import Who, serves
from .bodies import LargeUpdate, body_of, has_key, tasks_of_file, whole_of

SNAPSHOT_TASKS = 100_000
STATS_AT_ONCE = 2

turns = BoundedSemaphore(STATS_AT_ONCE)


def listing(
    request: HttpRequest, tasks: TaskQuerySet, limit: int | None = None, scope: GroupScope = EVERY_GROUP
) -> StreamingHttpResponse:
    """The tasks as a JSON list. The longest available first; at most `limit`.

    Its beginning is read before this returns, so that a database which can't be
    reached is an error answer and not a list that breaks off. Raises TooManyReaders.
    """
    pieces = pieces_of(b"[", (as_seen(task, scope) for task in _records(tasks, limit)), b"]")
    return streamed_long(request, pieces, JSONRenderer.media_type)


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


# ---- Groups


@serves(endpoints.GROUPS)
def groups(asked: requests.Nothing, who: Who) -> list[str]:
    return Task.objects.groups(who.scope)


@serves(endpoints.STATS)
def stats(asked: requests.StatsRequest, who: Who) -> StreamingHttpResponse:
    return streamed(who.request, in_numbers(who.scope.narrowed(asked.group)), JSONRenderer.media_type)


@serves(endpoints.GROUP_TASKS)
def group(asked: requests.GroupRequest, who: Who) -> StreamingHttpResponse:
    return _tasks_of(asked.name, asked, who)


@serves(endpoints.GROUP_BY_QUERY)
def group_by_query(asked: requests.GroupByQuery, who: Who) -> StreamingHttpResponse | list[str]:
    return Task.objects.groups(who.scope) if asked.name is None else _tasks_of(asked.name, asked, who)


def _tasks_of(name: str, asked: requests.Listed, who: Who) -> StreamingHttpResponse:
    who.must_reach(name)
    tasks = Task.objects.group(name, owned=asked.owned)
    for label in asked.label:
        tasks = tasks.bearing(*grammar.label(label, "label"))
    return listing(who.request, tasks, asked.limit or None, who.scope)


# ---- Tasks


@serves(endpoints.TASK)
def task(asked: requests.ById, who: Who) -> HttpResponseBase:
    tasks = Task.objects.read([asked.id], who.scope)
    if not tasks:
        raise no_task(asked.id, who.scope)
    return response_of(who.request, pieces_of(b"", tasks, b"", progress_of(tasks)), size_of_task(tasks[0]))


def no_task(task_id: int, scope: GroupScope) -> NotFound:
    told = history.epitaph_of(task_id, scope)
    return NotFound(told or f"Task {task_id} does not exist{history.doubt_about(task_id)}.")


@serves(endpoints.TASKS, endpoints.TASKS_BY_BODY)
def tasks(asked: requests.TasksRequest, who: Who) -> HttpResponseBase:
    if len(asked.ids) > (most := limits().changes):
        raise LimitExceeded({"ids": [sentences.at_most(most, "ids", len(asked.ids))]})
    found = {task.id: task for task in Task.objects.read([*set(asked.ids)], who.scope)}
    sizes = {task.id: size_of_task(task) for task in found.values()}
    size = sum(sizes.get(task_id, len("null,")) for task_id in asked.ids)
    refuse_too_large("ids", size, most_bytes())
    pieces = pieces_of(b"[", map(found.get, asked.ids), b"]", progress_of(found.values()))
    return response_of(who.request, pieces, size)


@serves(endpoints.HISTORY)
def history_of(asked: requests.ById, who: Who) -> History:
    found = history.history_of(asked.id, who.scope)
    if found is None:
        raise NotFound(f"Task {asked.id} does not exist{history.doubt_about(asked.id)}.")
    return found


@serves(endpoints.PROGRESS)
def progress(asked: requests.ProgressRequest, who: Who) -> Progress:
    reported = report(asked.id, owner=asked.clientid, done=asked.done, text=asked.text, scope=who.scope)
    if reported is None:
        raise no_task(asked.id, who.scope)
    return reported


@serves(endpoints.CANCEL)
def cancel(asked: requests.CancelRequest, who: Who) -> Cancelled:
    return Cancelled(ids=tuple(cancelling.cancel(asked.ids, who.actor.because(asked.reason))))


# ---- Searches and files


@serves(endpoints.SEARCH)
def search(asked: SearchRequest, who: Who) -> HttpResponseBase:
    found = find(grammar.parse(asked.q), scope=who.scope, after=Cursor.read(asked.after), limit=asked.limit)
    by_id = {task.id: task for task in Task.objects.read(found.ids, who.scope)}
    tasks = [by_id[task_id] for task_id in found.ids if task_id in by_id]
    number = fitting(tasks, most_bytes())
    is_truncated = number < len(tasks)
    end = Cursor.of(tasks[number - 1]) if is_truncated else found.after
    rest = SearchPage(
        tasks=(),
        after=str(end) if end else None,
        complete=not found.is_cut_short,
        looked_at=found.looked_at,
        at_ms=found.at_ms,
        truncated=is_truncated or UNSET,
    )
    start, _, after_end = ENCODER.encode(rest).partition(b"[]")
    pieces = pieces_of(start + b"[", tasks[:number], b"]" + after_end)
    return response_of(who.request, pieces, answer_size(tasks[:number]))


@serves(endpoints.EXPORT)
def export(asked: ExportRequest, who: Who) -> StreamingHttpResponse:
    terms = grammar.parse(asked.q)
    return download(who.request, Export(terms=terms, format=Format(asked.format), with_data=True, scope=who.scope))


@serves(endpoints.IMPORT)
async def import_tasks(asked: requests.ImportFile, who: Who) -> Imported:
    body, group = body_of(who.request), asked.group or ""
    tasks: ImportRequest | LargeUpdate
    if is_light(body):
        tasks = ImportRequest(clientid=NOBODY, adds=importing.read(body, group))
    else:
        tasks = whole_of(await by_the_helper(tasks_of_file, body, group, has_key(who.request)))
    key, is_checked = who.key_of(tasks), isinstance(tasks, LargeUpdate)
    commit = tasks.operation(who.scope, key) if isinstance(tasks, LargeUpdate) else import_of(tasks, who.scope, key)
    added = await Task.objects.aperform(importing.within_scope(commit), is_checked=is_checked)
    ids = tuple(task.id for task in added if not isinstance(task, Duplicate))
    return Imported(imported=len(ids), ids=ids, skipped=len(added) - len(ids))


# ---- Pause and resume groups; register and list workers


@serves(endpoints.PAUSE)
def pause(asked: requests.ReasonByGroup, who: Who) -> GroupPause:
    who.must_reach(asked.name)
    paused = pauses.pause(asked.name, who.actor.because(asked.reason))
    return GroupPause(group=asked.name, paused=Pause(by=paused.by, at_ms=paused.at_ms, reason=paused.reason))


@serves(endpoints.RESUME)
def resume(asked: requests.ReasonByGroup, who: Who) -> GroupPause:
    who.must_reach(asked.name)
    pauses.resume(asked.name, who.actor.because(asked.reason))
    return GroupPause(group=asked.name)


@serves(endpoints.LIMITS)
def all_limits(asked: requests.Nothing, who: Who) -> list[GroupLimit]:
    return group_limits.limits_in(who.scope)


@serves(endpoints.GROUP_LIMITS)
def limits_of_group(asked: LimitsByGroup, who: Who) -> GroupLimit | None:
    who.must_reach(asked.name)
    return group_limits.limit_of(asked.name)


@serves(endpoints.PUT_LIMITS)
def put_limits(asked: LimitsRequest, who: Who) -> GroupLimit:
    who.must_reach(asked.name)
    return group_limits.put(asked, who.actor.because(asked.reason))


@serves(endpoints.DELETE_LIMITS)
def delete_limits(asked: ReasonByLimits, who: Who) -> GroupLimit | None:
    who.must_reach(asked.name)
    return group_limits.remove(asked.name, who.actor.because(asked.reason))


@serves(endpoints.HEARTBEAT)
def heartbeat(asked: requests.ClientRequest, who: Who) -> ClientStatus:
    refuse_owner(who.scope, asked.clientid)
    who.must_reach(*asked.groups)
    client = Client(
        id=asked.clientid,
        name=asked.name,
        host=asked.host,
        pid=asked.pid,
        groups=list(asked.groups),
        version=asked.version,
        info=asked.info_as_text,
        token=who.token.pk,
    )
    return hear(client)


@serves(endpoints.CLIENTS)
def clients(asked: requests.Nothing, who: Who) -> list[ClientStatus]:
    done = done_per_minute()
    return [each.as_answer(done.get(each.client.id, 0.0)) for each in seen(who.scope)]
