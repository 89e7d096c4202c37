"""One list with its commands, and one command with its runs."""

from __future__ import annotations

from collections.abc import Iterator

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

from ..core.operations import EVERY_GROUP, GroupScope
from ..models import Task
from . import summaries
from .paging import LISTED, beginning_of, command_seen, lists_seen, seen_as

RUNS = 50  # Of a command that are shown: the newest.
LISTS = 2_000  # That are looked through for a command.
OF_ONE = tuple(sorted(RESULTS | {CommandStatus.NEW, CommandStatus.NEW_STASHED}))


def command_list(task_id: int, scope: GroupScope = EVERY_GROUP) -> ListWhole | None:
    """The list whose task has this id, or had it first; None when there is none, or no longer."""
    task = Task.objects.get_queryset().of_chain(task_id).first()
    place = place_of(task.group) if task else None
    if task is None or place is None or place[1] not in LISTED or not scope.allows(task.group):
        return None
    found = summaries.list_of(task)
    if found is None:
        return None
    [seen] = lists_seen([task], place[0], Task.objects.now_ms())
    live = _live(place[0], LIST_LABEL, found.name, scope) if seen.status is CommandStatus.RUNNING else []
    return ListWhole(project=place[0], list=seen, commands=found.commands, live=tuple(live))


def command(project: str, command_id: str, scope: GroupScope = EVERY_GROUP) -> CommandWhole | None:
    """The command of this id, without its number of fails too, and the runs before it; None when there is none.

    Raises InvalidInput about the project's name.
    """
    summaries.known_project(project)
    for first_id in _first_ids(command_id):
        if found := _with_runs(project, first_id, scope):
            return found
    return None


def _first_ids(command_id: str) -> list[str]:
    """What it may be the id of: as it is, or a duplicate."""
    stem, _, fails = command_id.rpartition("_")
    return [stem, command_id] if stem and fails.isdecimal() else [command_id]


def _with_runs(project: str, first_id: str, scope: GroupScope) -> CommandWhole | None:
    live = _live(project, COMMAND_LABEL, first_id, scope)
    apart = _outside_of_lists(project, first_id, scope)
    if apart and apart[0].run is None and apart[0].status in (CommandStatus.NEW, CommandStatus.NEW_STASHED):
        newest, earlier = apart[0], apart[1:]
    elif listed := _within_lists(project, first_id, live, scope):
        newest, earlier = listed, apart
    elif apart:
        newest, earlier = apart[0], apart[1:]
    else:
        return None
    is_running = newest.status is CommandStatus.RUNNING
    return CommandWhole(
        newest=newest,
        earlier=tuple(map(beginning_of, earlier)),
        tail=max(live, key=lambda each: each.at, default=None) if is_running else None,
    )


def _outside_of_lists(project: str, first_id: str, scope: GroupScope) -> list[CommandSeen]:
    """Where it lies by itself: what is to be run first, then its runs, the newest first."""
    groups = summaries.groups_of(project, OF_ONE, scope)
    tasks = Task.objects.get_queryset().bearing(COMMAND_LABEL, first_id).filter(group__in=groups)
    found = [seen for task in tasks.order_by("-id")[:RUNS] if (seen := command_seen(task, project))]
    return sorted(found, key=_order, reverse=True)


def _order(seen: CommandSeen) -> tuple[bool, int, int, int]:
    # Not by the task alone: what is moved to an archive gets a newer one.
    return seen.run is None, seen.run.started if seen.run else 0, seen.fails, seen.task


def _within_lists(project: str, first_id: str, live: list[LiveOutput], scope: GroupScope) -> CommandSeen | None:
    """The command in the list that it lies in; None when it lies in none."""
    now_ms, needle = Task.objects.now_ms(), first_id.encode()
    for task in _lists_to_look_into(project, live, scope):
        if needle not in bytes(task.data):  # To read the list takes far longer.
            continue
        found = summaries.list_of(task)
        for command in found.commands if found else ():
            if command.first_id == first_id:
                return seen_as(command, task, project, summaries.status_of(task.group, task.state(now_ms)))
    return None


def _lists_to_look_into(project: str, live: list[LiveOutput], scope: GroupScope) -> Iterator[Task]:
    """The lists that a worker says to run it in; then all the others."""
    tasks = Task.objects.get_queryset().filter(group__in=summaries.groups_of(project, LISTED, scope))
    for each in live:
        yield from tasks.bearing(LIST_LABEL, each.list)
    yield from tasks.order_by("-available_at_ms", "-id")[:LISTS].of_one_moment(at_once=20)


def _live(project: str, label: str, value: str, scope: GroupScope) -> list[LiveOutput]:
    """What has been written so far by commands with this label."""
    group = output_group(project)
    if not scope.allows(group):
        return []
    tasks = Task.objects.get_queryset().in_group(group).bearing(label, value)
    return [live for task in tasks if (live := _live_of(task))]


def _live_of(task: Task) -> LiveOutput | None:
    try:
        return LiveOutput.decode(bytes(task.data))
    except NotACommand:
        return None
