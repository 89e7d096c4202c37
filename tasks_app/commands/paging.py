"""Lists and results of a project, page by page: by key, never by offset, the newest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from heapq import nlargest

from msgspec.structs import replace

from taskstore.types.command_record import LIST_LABEL, OF_LISTS, RESULTS, Command, CommandStatus, NotACommand
from taskstore.types.commands import CommandSeen, ListPage, ListSeen, ResultPage

from ..core.operations import EVERY_GROUP, GroupScope, TaskRecord
from ..managers import TaskQuerySet
from ..models import Task
from ..reading.listing import PAGE, Cursor
from . import summaries

MOST = 200  # A page.
LOOKED_AT = 1_000  # Results at most that a page of a search has looked into,
LOOKED_BYTES = 32 * 2**20  # and so much of their data.
AT_ONCE = 20  # Results are read: each may have as much as a task can hold.

LISTED = tuple(sorted(OF_LISTS - {CommandStatus.RUNNING}))


# ---- Lists


def lists(
    project: str,
    *,
    status: CommandStatus | None = None,
    after: str | None = None,
    limit: int = PAGE,
    scope: GroupScope = EVERY_GROUP,
) -> ListPage:
    """At most `limit` lists that follow `after`: what is running first, then the newest first.

    `status`: open, open_stashed, running or closed; None: all. Raises InvalidInput about the project's name.
    """
    now_ms = Task.objects.now_ms()
    groups = summaries.groups_of(summaries.known_project(project), [status] if status else LISTED, scope)
    tasks = [_in_status(Task.objects.get_queryset().in_group(group), status, now_ms) for group in groups]
    places = _places(tasks, after, limit + 1)
    found = {task.id: task for task in Task.objects.get_queryset().filter(id__in=_ids(places[:limit])).defer("data")}
    tasks_found = [found[task_id] for task_id in _ids(places[:limit]) if task_id in found]
    return ListPage(
        lists=tuple(lists_seen(tasks_found, project, now_ms)),
        after=str(places[limit - 1]) if len(places) > limit else None,
    )


def _in_status(tasks: TaskQuerySet, status: CommandStatus | None, now_ms: int) -> TaskQuerySet:
    match status:
        case CommandStatus.RUNNING:
            return tasks.claimed(now_ms)
        case CommandStatus.OPEN:
            return tasks.exclude(available_at_ms__gt=now_ms, leased_since_ms__gt=0)
    return tasks


def lists_seen(tasks: Sequence[Task], project: str, now_ms: int) -> list[ListSeen]:
    """The lists that these tasks of a project are, in their order."""
    workers = summaries.workers_of(task.owner for task in tasks)
    told = summaries.told_by_list(project)
    return [_list_seen(task, workers.get(task.owner, ""), told, now_ms) for task in tasks]


def _list_seen(task: Task, worker: str, told: Mapping[str, summaries.Told], now_ms: int) -> ListSeen:
    name, status = task.labels.get(LIST_LABEL, ""), summaries.status_of(task.group, task.state(now_ms))
    is_running, is_closed = status is CommandStatus.RUNNING, status is CommandStatus.CLOSED
    commands, expected_duration = summaries.sizes_of(task.id, task.labels)
    return ListSeen(
        task=task.id,
        origin=task.origin,
        name=name,
        status=status,
        commands=commands,
        expected_duration=expected_duration,
        worker=worker if is_running or is_closed else "",
        left_ms=task.available_at_ms - now_ms if is_running else 0,
        done=commands if is_closed else told.get(name, summaries.NOTHING_TOLD).done if is_running else 0,
        at_ms=task.leased_since_ms if is_running else task.made_at_ms,
        place=str(Cursor(available_at_ms=task.available_at_ms, id=task.id)),
    )


# ---- Results


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a search has to find in a result: in its id, its line, its worker, or what it wrote. Empty: anything."""

    text: str

    def is_in(self, command: CommandSeen) -> bool:
        if not self.text:
            return True
        run = command.run
        texts = [command.id, command.cmd, *([run.worker, run.out.text, run.err.text] if run else [])]
        return any(self.text.casefold() in text.casefold() for text in texts)


def results(
    project: str,
    *,
    status: CommandStatus | None = None,
    text: str = "",
    after: str | None = None,
    limit: int = PAGE,
    scope: GroupScope = EVERY_GROUP,
) -> ResultPage:
    """At most `limit` commands that follow `after`, the newest first, with the beginnings of what they wrote.

    `status`: one in which commands lie outside of lists; None: all that are done with. `text`: what has to be in the
    line, the id, the worker or the outputs. A search looks into so many of them at most: its page may be short and
    say where to go on. Raises InvalidInput about the project's name.
    """
    wanted = Wanted(text)
    groups = summaries.groups_of(summaries.known_project(project), [status] if status else sorted(RESULTS), scope)
    tasks = [Task.objects.get_queryset().in_group(group) for group in groups]
    looked_at = LOOKED_AT if text else limit
    places = _places(tasks, after, looked_at + 1)
    found, last = _search(places[:looked_at], wanted, limit, project)
    has_more = bool(places) and last != places[-1]
    return ResultPage(commands=tuple(found), after=str(last) if has_more else None)


def _search(
    places: Sequence[Cursor], wanted: Wanted, limit: int, project: str
) -> tuple[list[CommandSeen], Cursor | None]:
    """What of it is wanted, and the last place that was looked at."""
    found: list[CommandSeen] = []
    last, read_bytes = None, 0
    for place, task in _read(places):
        if len(found) == limit or read_bytes > LOOKED_BYTES:
            break
        last = place
        seen = command_seen(task, project) if task else None
        read_bytes += len(task.data) if task else 0
        if seen and wanted.is_in(seen):
            found.append(beginning_of(seen))
    return found, last


def _read(places: Sequence[Cursor]) -> Iterator[tuple[Cursor, Task | None]]:
    """The tasks at these places, some at once; None for what is gone meanwhile."""
    for piece in summaries.in_pieces(places, AT_ONCE):
        yield from zip(piece, Task.objects.find(_ids(piece)), strict=True)


def command_seen(task: Task, project: str) -> CommandSeen | None:
    """The command that a task outside of lists is; None when it is none."""
    try:
        command = Command.decode(bytes(task.data))
    except NotACommand:
        return None
    status = summaries.status_of(task.group, task.state(task.available_at_ms))
    return seen_as(command, task, project, status)


def seen_as(command: Command, task: Task | TaskRecord, project: str, status: CommandStatus) -> CommandSeen:
    """The command of a task, or of the list that the task is."""
    return CommandSeen(
        **{each.name: getattr(command, each.name) for each in fields(command)},
        first_id=command.first_id,
        project=project,
        status=status,
        task=task.id,
        is_whole=True,
        at_ms=task.made_at_ms,
        place=str(Cursor(available_at_ms=task.available_at_ms, id=task.id)),
    )


def beginning_of(seen: CommandSeen) -> CommandSeen:
    """The same with the beginnings of what it wrote."""
    run = summaries.shown(seen.run) if seen.run else None
    return replace(seen, run=run, is_whole=run == seen.run)


# ---- Keys


def _places(tasks: Iterable[TaskQuerySet], after: str | None, limit: int) -> list[Cursor]:
    """The first of all of them together. Those are among the first of each, which its index has in order."""

    place = None if after is None else Cursor.read(after, "after")

    def firsts() -> Iterator[tuple[int, int]]:
        for each in tasks:
            beyond = _beyond(each, place) if place else each
            yield from beyond.order_by("-available_at_ms", "-id").values_list("available_at_ms", "id")[:limit]

    return [Cursor(available_at_ms=time, id=task_id) for time, task_id in nlargest(limit, firsts())]


def _beyond(tasks: TaskQuerySet, place: Cursor) -> TaskQuerySet:
    # The first condition bounds the scan of the index, which the second alone would not.
    from_there = tasks.filter(available_at_ms__lte=place.available_at_ms)
    return from_there.exclude(available_at_ms=place.available_at_ms, id__gte=place.id)


def _ids(places: Iterable[Cursor]) -> list[int]:
    return [place.id for place in places]
