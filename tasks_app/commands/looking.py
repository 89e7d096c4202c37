"""Read projects, lists and commands without changing them. A scope hides the groups that it does not allow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from msgspec.structs import replace

from taskstore.types.command_record import (
    COMMAND_LABEL,
    LIST_LABEL,
    RESULTS,
    CommandStatus,
    LiveOutput,
    NotACommand,
    output_group,
    place_of,
)
from taskstore.types.commands import CommandSeen, CommandWhole, ListWhole
from taskstore.types.progress import Progress

from ..control.progress import progress_of
from ..core.operations import EVERY_GROUP, GroupScope
from ..models import Task
from ..reading.pages import PAGE
from . import summaries
from .paging import LISTED, MOST, beginning_of, command_seen, lists, lists_seen, results, seen_as
from .progress import overview, status

__all__ = ["MOST", "PAGE", "command", "command_list", "lists", "overview", "results", "status"]

RUNS = 50  # The newest runs of a command, which are shown.
LISTS = 2_000  # Lists to search for a command.
OF_ONE = tuple(sorted(RESULTS | {CommandStatus.NEW, CommandStatus.NEW_STASHED}))


def command_list(task_id: int, scope: GroupScope = EVERY_GROUP) -> ListWhole | None:
    """Return the list whose task has this id, or had it first; None when it does not exist or no longer exists."""
    task = Task.objects.get_queryset().of_chain(task_id).first()
    place = place_of(task.group) if task else None
    if task is None or place is None or place[1] not in LISTED or not scope.allows(task.group):
        return None
    found = summaries.list_of(task)
    if found is None:
        return None
    [seen] = lists_seen([task], place[0], Task.objects.now_ms())
    live = _live(place[0], LIST_LABEL, str(task.origin), scope) if seen.status is CommandStatus.RUNNING else []
    return ListWhole(project=place[0], list=seen, commands=found.commands, live=tuple(live))


def command(project: str, command_id: str, scope: GroupScope = EVERY_GROUP) -> CommandWhole | None:
    """Return the command with its earlier runs, by its id with or without the number of fails; None without one.

    Raises InvalidInput about the project's name.
    """
    summaries.known_project(project)
    stem, _, fails = command_id.rpartition("_")
    for first_id in [stem, command_id] if stem and fails.isdecimal() else [command_id]:
        if found := _with_runs(project, first_id, scope):
            return found
    return None


def _with_runs(project: str, first_id: str, scope: GroupScope) -> CommandWhole | None:
    live = _live(project, COMMAND_LABEL, first_id, scope)
    groups = summaries.groups_of(project, OF_ONE, scope)
    tasks = Task.objects.get_queryset().bearing(COMMAND_LABEL, first_id).filter(group__in=groups)
    apart = [seen for task in tasks.order_by("-id")[:RUNS] if (seen := command_seen(task, project))]
    # Unstarted first, then the newest run. The task id does not order runs: archiving gives a task a newer one.
    apart.sort(key=lambda s: (s.run is None, s.run.started if s.run else 0, s.fails, s.task), reverse=True)
    if apart and apart[0].run is None and apart[0].status in (CommandStatus.NEW, CommandStatus.NEW_STASHED):
        newest, earlier = apart[0], apart[1:]
    elif listed := _within_lists(project, first_id, live, scope):
        newest, earlier = listed, apart
    elif apart:
        newest, earlier = apart[0], apart[1:]
    else:
        return None
    is_running = newest.status is CommandStatus.RUNNING
    tail = max(live, key=lambda each: each.at, default=None) if is_running else None
    if tail:
        newest = replace(newest, progress=_progress(newest, tail))
    return CommandWhole(newest=newest, earlier=tuple(map(beginning_of, earlier)), tail=tail)


def _progress(seen: CommandSeen, tail: LiveOutput) -> Progress | None:
    """Return what the running command has reported. The list's commands before it have reported in the same place."""
    found = next(iter(progress_of(Task.objects.get_queryset().defer("data").filter(id=seen.task)).values()), None)
    started_s = tail.due - seen.expected_duration
    return found if found and tail.due and found.at_ms >= started_s * 1_000 else None


def _within_lists(project: str, first_id: str, live: list[LiveOutput], scope: GroupScope) -> CommandSeen | None:
    """Return the command from its list; None when no list has it."""
    now_ms, needle = Task.objects.now_ms(), first_id.encode()
    for task in _lists_to_search(project, live, scope):
        if needle not in bytes(task.data):  # Parsing the list takes far longer.
            continue
        found = summaries.list_of(task)
        for command in found.commands if found else ():
            if command.first_id == first_id:
                return seen_as(command, task, project, summaries.status_of(task.group, task.state(now_ms)))
    return None


def _lists_to_search(project: str, live: list[LiveOutput], scope: GroupScope) -> Iterator[Task]:
    """Yield the lists in which a worker reports to run the command, then all others."""
    tasks = Task.objects.get_queryset().filter(group__in=summaries.groups_of(project, LISTED, scope))
    yield from tasks.of_chains([each.task for each in live])
    yield from tasks.order_by("-available_at_ms", "-id")[:LISTS].of_one_moment()


def _live(project: str, label: str, value: str, scope: GroupScope) -> list[LiveOutput]:
    """Return the live outputs of commands with this label."""
    group = output_group(project)
    found = []
    if scope.allows(group):
        for task in Task.objects.get_queryset().in_group(group).bearing(label, value):
            with suppress(NotACommand):
                found.append(LiveOutput.decode(bytes(task.data)))
    return found
