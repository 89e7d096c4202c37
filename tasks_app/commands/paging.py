"""List the lists and results of a project in pages: by key, without an offset, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from taskstore.types.command_record import LIST_LABEL, OF_LISTS, RESULTS, Command, CommandStatus, NotACommand
from taskstore.types.commands import CommandSeen, ListPage, ListSeen, ResultPage

from ..control.progress import progress_of
from ..core.operations import EVERY_GROUP, GroupScope, TaskRecord
from ..core.portions import portions
from ..models import Task
from ..reading.pages import PAGE, Cursor, latest
from . import summaries

MOST = 200  # On a page.
LOOKED_AT = 1_000  # The most results that a page of a search reads,
LOOKED_BYTES = 32 * 2**20  # and the most bytes of them.
AT_ONCE = 20  # Results per read: each may be as large as a task can be.

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
    """Return at most `limit` lists that follow `after`: running ones first, then the newest first.

    `status`: open, open_stashed, running or closed; None: all. Raises InvalidInput about the project's name.
    """
    now_ms = Task.objects.now_ms()
    groups = summaries.groups_of(summaries.known_project(project), [status] if status else LISTED, scope)
    tasks = [Task.objects.get_queryset().in_group(group) for group in groups]
    if status is CommandStatus.RUNNING:
        tasks = [each.claimed(now_ms) for each in tasks]
    elif status is CommandStatus.OPEN:
        tasks = [each.exclude(available_at_ms__gt=now_ms, leased_since_ms__gt=0) for each in tasks]
    places, next_place = latest(tasks, Cursor.read(after), limit)
    ids = [place.id for place in places]
    found = {task.id: task for task in Task.objects.get_queryset().filter(id__in=ids).defer("data")}
    tasks_found = [found[task_id] for task_id in ids if task_id in found]
    return ListPage(
        lists=tuple(lists_seen(tasks_found, project, now_ms)), after=str(next_place) if next_place else None
    )


def lists_seen(tasks: Sequence[Task], project: str, now_ms: int) -> list[ListSeen]:
    """Return the lists of these tasks of a project, in their order."""
    workers = summaries.workers_of(task.owner for task in tasks)
    progress = progress_of(tasks)
    found = []
    for task in tasks:
        name, status = task.labels.get(LIST_LABEL, ""), summaries.status_of(task.group, task.state(now_ms))
        is_running, is_closed = status is CommandStatus.RUNNING, status is CommandStatus.CLOSED
        commands, expected_duration = summaries.sizes_of(task.id, task.labels)
        done = commands if is_closed else summaries.done_of(task.labels) if is_running else 0
        found.append(
            ListSeen(
                task=task.id,
                origin=task.origin,
                name=name,
                status=status,
                commands=done + commands if is_running else commands,
                expected_duration=expected_duration,
                worker=workers.get(task.owner, "") if is_running or is_closed else "",
                left_ms=task.available_at_ms - now_ms if is_running else 0,
                done=done,
                at_ms=task.leased_since_ms if is_running else task.made_at_ms,
                place=str(Cursor.of(task)),
                error=task.error,
                progress=progress.get(task.origin),
            )
        )
    return found


# ---- Results


@dataclass(frozen=True, slots=True)
class Wanted:
    """The text to find in a result: in its id, line, worker or outputs. Empty matches any result."""

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
    """Return at most `limit` commands that follow `after`, the newest first, with the beginnings of their outputs.

    `status`: one of commands outside of lists; None: all finished ones. `text` must be in the line, the id, the worker
    or the outputs. A search reads a limited number of results, so its page may be short and still have an `after`.
    Raises InvalidInput about the project's name.
    """
    wanted = Wanted(text)
    groups = summaries.groups_of(summaries.known_project(project), [status] if status else sorted(RESULTS), scope)
    tasks = [Task.objects.get_queryset().in_group(group) for group in groups]
    looked_at = LOOKED_AT if text else limit
    places, next_place = latest(tasks, Cursor.read(after), looked_at)
    found, last = _search(places, wanted, limit, project)
    has_more = bool(next_place or (places and last != places[-1]))
    return ResultPage(commands=tuple(found), after=str(last) if has_more else None)


def _search(
    places: Sequence[Cursor], wanted: Wanted, limit: int, project: str
) -> tuple[list[CommandSeen], Cursor | None]:
    """Return the matching commands, and the last place that was read."""
    found: list[CommandSeen] = []
    last, read_bytes = None, 0
    pieces = portions(places, AT_ONCE)
    # A task that no longer exists is None.
    read = (
        each for piece in pieces for each in zip(piece, Task.objects.find([place.id for place in piece]), strict=True)
    )
    for place, task in read:
        if len(found) == limit or read_bytes > LOOKED_BYTES:
            break
        last = place
        seen = command_seen(task, project) if task else None
        read_bytes += len(task.data) if task else 0
        if seen and wanted.is_in(seen):
            found.append(beginning_of(seen))
    return found, last


def command_seen(task: Task, project: str) -> CommandSeen | None:
    """Return the command of a task outside of lists; None when it is not a command."""
    try:
        command = Command.decode(bytes(task.data))
    except NotACommand:
        return None
    status = summaries.status_of(task.group, task.state(task.available_at_ms))
    return seen_as(command, task, project, status)


def seen_as(command: Command, task: Task | TaskRecord, project: str, status: CommandStatus) -> CommandSeen:
    """Return a command of a task, which is the command itself or its list."""
    return CommandSeen(
        **{name: getattr(command, name) for name in command.__struct_fields__},
        first_id=command.first_id,
        project=project,
        status=status,
        task=task.id,
        batch=task.batch,
        is_whole=True,
        at_ms=task.made_at_ms,
        place=str(Cursor.of(task)),
    )


def beginning_of(seen: CommandSeen) -> CommandSeen:
    """Return the command with the beginnings of its outputs."""
    run = summaries.shown(seen.run) if seen.run else None
    return replace(seen, run=run, is_whole=run == seen.run)
