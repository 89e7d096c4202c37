"""The progress of projects: counts by status, durations, and a forecast."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from math import ceil
from statistics import fmean
from typing import Any, NamedTuple

from django.db.models import Q

from taskstore.types.command_record import LIST_LABEL, OF_LISTS, PREFIX, RESULTS, CommandStatus, group_of, place_of
from taskstore.types.commands import ProjectCounts, ProjectStatus, RunningList, Statistics
from taskstore.types.groups import LATE_MS, ClientStatus

from ..core.operations import EVERY_GROUP, GroupScope
from ..models import Client, Task
from ..reading import clients
from ..reading.counts import group_counts
from . import summaries


class Load(NamedTuple):
    """The work of a group of open lists, and the workers for it."""

    commands: int  # In all running lists.
    slots: int  # How many lists all live workers together run at once.
    free: int  # The slots without a list.

    @property
    def share(self) -> int:
        """How many commands each slot has when all have the same number."""
        return max(1, -(-self.commands // max(1, self.slots)))


NO_LOAD = Load(0, 0, 0)


def hear(client: Client) -> ClientStatus:
    """Store a heartbeat. The answer says how much a worker should keep of each list, if others are idle."""
    waiting = info_of(client).get("waiting")
    groups = [each for each in waiting if isinstance(each, str)] if isinstance(waiting, list) else []
    heard = clients.hear(client)
    loads = {group: load_of(group) for group in groups if is_open_group(group) and group in client.groups}
    return heard.as_answer(keep={group: load.share for group, load in loads.items() if load.free})


def is_open_group(group: str) -> bool:
    place = place_of(group)
    return place is not None and place[1] == CommandStatus.OPEN


def load_of(group: str) -> Load:
    """Return the load of a group of open lists; none while a list is open, which idle workers get first."""
    now_ms = Task.objects.now_ms()
    lists = Task.objects.get_queryset().in_group(group)
    if lists.available(now_ms).exists():
        return NO_LOAD
    leased = Q(available_at_ms__gt=now_ms, leased_since_ms__gt=0)
    held = Counter(lists.filter(leased).values_list("owner", flat=True))
    sizes: Any = lists.values_list("id", "labels")  # Their type does not have our query set's methods.
    commands = sum(summaries.sizes_of(task_id, labels)[0] for task_id, labels in sizes.of_one_moment())
    slots = slots_by_client(group, now_ms)
    free = sum(max(0, number - held[client_id]) for client_id, number in slots.items())
    return Load(commands, sum(slots.values()), free)


def slots_by_client(group: str, now_ms: int) -> Mapping[int, int]:
    """Return how many lists of the group each live worker runs at once, by client id."""
    heard: Iterable[Client] = Client.objects.filter(seen_at_ms__gte=now_ms - LATE_MS)
    return {each.pk: slots_of(each) for each in heard if group in each.groups}


def slots_of(client: Client) -> int:
    said = info_of(client).get("slots", 1)
    return said if type(said) is int and said >= 0 else 1


def info_of(client: Client) -> Mapping[str, object]:
    """Return what a client said, which may be any object."""
    said: Mapping[str, object] = json.loads(client.info)
    return said


SAMPLE = 1_000  # The newest runs; reading a hundred thousand would take seconds.
SHOWN = 200  # Running lists.
WAITING = 100  # New commands whose expected durations are read.
TO_DO = (CommandStatus.NEW, CommandStatus.OPEN, CommandStatus.RUNNING)

ROW = ("id", "origin", "group", "labels", "available_at_ms", "leased_since_ms", "owner")


@dataclass(slots=True)
class Counting:
    """The numbers of a project while they are added up."""

    counts: dict[CommandStatus, int] = field(default_factory=dict)
    lists: dict[CommandStatus, int] = field(default_factory=dict)
    rest_ms: int = 0  # The longest expected remaining time of a running command.

    def add(self, status: CommandStatus, commands: int) -> None:
        self.counts[status] = self.counts.get(status, 0) + commands

    def add_list(self, status: CommandStatus, commands: int) -> None:
        self.add(status, commands)
        self.lists[status] = self.lists.get(status, 0) + 1


def overview(scope: GroupScope = EVERY_GROUP) -> list[ProjectCounts]:
    """Return every project that has tasks within the scope, sorted by name."""
    counted, _ = _count(f"{PREFIX}*", scope)
    return [_counts(project, counted[project]) for project in sorted(counted)]


def status(project: str, scope: GroupScope = EVERY_GROUP) -> ProjectStatus:
    """Return the progress of a project, all zero when it is empty. Raises InvalidInput about its name."""
    summaries.known_project(project)
    counted, running = _count(f"{PREFIX}{project}/*", scope)
    counting = counted.get(project, Counting())
    counts = _counts(project, counting)
    runs = list(_runs(_newest(summaries.groups_of(project, sorted(RESULTS), scope))))
    durations = _statistics(sorted(duration_ms for duration_ms, *_ in runs))
    return ProjectStatus(
        project=project,
        counts=counts.counts,
        lists=counts.lists,
        running=tuple(sorted(running, key=lambda each: (each.started_ms, each.task))[:SHOWN]),
        forecast_s=_forecast_s(counts, running, durations, counting.rest_ms, scope),
        durations=durations,
        fails=sum(is_failed for _, is_failed, _ in runs),
        cut=sum(is_cut for *_, is_cut in runs),
    )


def _counts(project: str, counted: Counting) -> ProjectCounts:
    return ProjectCounts(
        project=project,
        counts={status.value: counted.counts.get(status, 0) for status in CommandStatus},
        lists={status.value: counted.lists.get(status, 0) for status in CommandStatus if status in OF_LISTS},
    )


# ---- Counts


def _count(pattern: str, scope: GroupScope) -> tuple[dict[str, Counting], list[RunningList]]:
    """Return the numbers of the projects whose groups match the pattern, by name, and the running lists."""
    counted: dict[str, Counting] = {}
    of_lists = []
    for group, numbers in group_counts(GroupScope((pattern,))).items():
        place = place_of(group)
        if place is None or place[1] not in [*CommandStatus] or not scope.allows(group):
            continue
        project = counted.setdefault(place[0], Counting())
        if place[1] in OF_LISTS:
            of_lists.append(group)
        else:
            project.add(CommandStatus(place[1]), numbers.tasks)
    return counted, _count_lists(of_lists, counted)


def _count_lists(groups: Sequence[str], counted: Mapping[str, Counting]) -> list[RunningList]:
    """Add the lists of these groups, and return the running ones."""
    now_ms, running = Task.objects.now_ms(), []
    # Plain rows, as there may be many. Their type does not have our query set's methods.
    tasks: Any = Task.objects.get_queryset().filter(group__in=groups).values_list(*ROW, named=True)
    for task in tasks.of_one_moment():
        project, end = place_of(task.group) or ("", "")
        commands, _ = summaries.sizes_of(task.id, task.labels)
        is_claimed = task.leased_since_ms > 0 and task.available_at_ms > now_ms
        if is_claimed and end == CommandStatus.OPEN:
            running.append((project, task, commands))
            end = CommandStatus.RUNNING
        counted[project].add_list(CommandStatus(end), commands)
    return _running_lists(running, counted, now_ms)


def _running_lists(
    found: Sequence[tuple[str, Any, int]], counted: Mapping[str, Counting], now_ms: int
) -> list[RunningList]:
    workers = summaries.workers_of(task.owner for _, task, _ in found)
    due = {project: summaries.due_by_list(project) for project in {project for project, _, _ in found}}
    running = []
    for project, task, commands in found:
        done = summaries.done_of(task.labels)
        due_s = due[project].get(str(task.origin), 0)
        counted[project].rest_ms = max(counted[project].rest_ms, due_s * 1_000 - now_ms)
        running.append(
            RunningList(
                task=task.id,
                name=task.labels.get(LIST_LABEL, ""),
                worker=workers.get(task.owner, ""),
                owner=task.owner,
                commands=done + commands,
                done=done,
                started_ms=task.leased_since_ms,
                left_ms=task.available_at_ms - now_ms,
            )
        )
    return running


# ---- Times


def _newest(groups: Iterable[str]) -> list[int]:
    """Return the ids of the newest tasks of all these groups together."""

    def places() -> Iterable[tuple[int, int]]:
        for group in groups:
            tasks = Task.objects.get_queryset().in_group(group).order_by("-available_at_ms", "-id")
            yield from tasks.values_list("available_at_ms", "id")[:SAMPLE]

    return [task_id for _, task_id in nlargest(SAMPLE, places())]


def _runs(ids: Sequence[int]) -> Iterable[tuple[int, bool, bool]]:
    """Yield the duration of each run, whether it failed, and whether its output was cut.

    Leaves out commands that never ran, and those with long lines.
    """
    heads = Task.objects.get_queryset().filter(id__in=ids).beginnings(summaries.HEAD_BYTES)
    for group, head in heads.values_list("group", "data_start"):  # type: ignore[misc]  # mypy misses annotations.
        duration_ms = summaries.number_in(bytes(head or b""), "duration_ms")
        if duration_ms is not None:
            status = (place_of(group) or ("", ""))[1]
            is_failed = status not in (CommandStatus.COMPLETED, CommandStatus.COMPLETED_ARCHIVE)
            yield duration_ms, is_failed, bool(summaries.number_in(bytes(head), "missing"))


def _statistics(durations_ms: Sequence[int]) -> Statistics:
    if not durations_ms:
        return Statistics()

    def reached_by(share: float) -> int:
        return durations_ms[ceil(share * len(durations_ms)) - 1]

    return Statistics(
        count=len(durations_ms),
        mean_ms=fmean(durations_ms),
        p50_ms=reached_by(0.5),
        p95_ms=reached_by(0.95),
        max_ms=durations_ms[-1],
    )


def _forecast_s(
    counts: ProjectCounts, running: Sequence[RunningList], durations: Statistics, rest_ms: int, scope: GroupScope
) -> float | None:
    """Estimate the rest: commands times their mean duration, divided by how many run at once.

    At least the longest expected remaining time of a running command. None when nothing is known.
    """
    to_do = sum(counts.counts.get(each, 0) for each in TO_DO)
    if to_do <= 0:
        return 0.0
    slots = slots_by_client(group_of(counts.project, CommandStatus.OPEN), Task.objects.now_ms())
    # Workers that are idle get a part of the lists of the others.
    at_once = min(to_do, max(len(running), sum(slots.values())))
    each_s = durations.mean_ms / 1_000 if durations.count else _expected_s(counts, scope)
    if not at_once or each_s is None:
        return None
    return max(to_do * each_s / at_once, rest_ms / 1_000)


def _expected_s(counts: ProjectCounts, scope: GroupScope) -> float | None:
    """Return the mean expected duration of waiting commands, from a sample; None when there are none."""
    groups = summaries.groups_of(counts.project, [CommandStatus.NEW], scope)
    new = Task.objects.get_queryset().filter(group__in=groups).longest_available_first()
    heads = new.beginnings(summaries.HEAD_BYTES).values_list("data_start", flat=True)[:WAITING]  # type: ignore[misc]
    found = (summaries.number_in(bytes(head or b""), "expected_duration") for head in heads)
    expected_of_new = [expected for expected in found if expected is not None]
    groups = summaries.groups_of(counts.project, [CommandStatus.OPEN], scope)
    lists = Task.objects.get_queryset().filter(group__in=groups).values_list("id", "labels")[:WAITING]
    sizes = [summaries.sizes_of(task_id, labels) for task_id, labels in lists]
    commands = sum(size for size, _ in sizes) + len(expected_of_new)
    expected_s = sum(each for _, each in sizes) + sum(expected_of_new)
    return expected_s / commands if commands else None
