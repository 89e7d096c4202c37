"""Submit, stash, reopen, archive and retry commands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from uuid import uuid4

from msgspec.structs import replace

from taskstore.errors import CommitRefused, refuse
from taskstore.types import sentences
from taskstore.types.batches import NewBatch, Plan, plan_of
from taskstore.types.checks import MOST
from taskstore.types.command_record import (
    FINAL,
    Command,
    CommandList,
    CommandStatus,
    group_of,
    members_of,
    new_command_task,
    why_no_project,
)
from taskstore.types.commands import Submission, SubmitRequest, wrong_submissions
from taskstore.types.scalars import LATEST_MS
from taskstore.types.sentences import is_utf8
from taskstore.types.tasks import NOBODY, Change, Ending, NewTask, State

from ..access import audit
from ..core.actors import PROGRAM, Actor
from ..core.batches import keeps_failures
from ..core.operations import BatchStep, Commit, GroupScope, ResendKey, Step
from ..core.portions import by_halves, portions
from ..core.validation import task_ids
from ..database import atomic
from ..models import Batch, Task
from .summaries import available, decoded, pages_of, tasks_with

PIECE = 100  # Tasks of a commit.
WITH_OUTPUTS = 20  # The same for tasks that may be large.

ChangeIds = Callable[[Sequence[int]], int]

EXPECTED_DURATION = 60  # Seconds.
KEPT_S = 7 * 24 * 3_600  # How long a command may wait for its start.
MAX_FAILS = 3

_newest_id = 0
_ids_lock = threading.Lock()


def by_pieces(pages: Iterable[Sequence[int]], change: ChangeIds, size: int = PIECE) -> int:
    """Call `change` with some ids at a time. Returns how many it changed in all.

    When a commit is refused because a task no longer exists, the others of its piece are changed.
    """
    pieces = (piece for page in pages for piece in portions(page, size))
    return sum(done for ids in pieces for done in by_halves(ids, change, lambda *_: 0, is_refusal))


def is_refusal(error: Exception) -> bool:
    return isinstance(error, CommitRefused)


Statuses = Mapping[CommandStatus, CommandStatus]
Pages = Iterable[Sequence[int]]

STASHED: Statuses = {CommandStatus.NEW: CommandStatus.NEW_STASHED, CommandStatus.OPEN: CommandStatus.OPEN_STASHED}
UNSTASHED: Statuses = {stashed: status for status, stashed in STASHED.items()}
ARCHIVED: Statuses = {CommandStatus.COMPLETED: CommandStatus.COMPLETED_ARCHIVE}

ARCHIVED_AFTER_MS = 7 * 86_400_000
PAGES_ARCHIVED = 2  # In one round of the server.


def stash(project: str, ids: Sequence[int] | None = None, actor: Actor = PROGRAM) -> int:
    """Stash new commands and open lists. `ids` are those of their tasks; None: all.

    Running lists continue, unless their ids are given: then their workers end the commands. Returns how many tasks
    were stashed. Raises Forbidden.
    """
    must_change(project, actor)
    refuse(task_ids("ids", ids or ()))
    lists = Task.objects.get_queryset().in_group(group_of(project, CommandStatus.OPEN)).claimed(Task.objects.now_ms())
    named = list(lists.filter(id__in=ids).values_list("id", flat=True)) if ids else []
    running = sum(_take_away(project, task_id, actor, CommandStatus.OPEN_STASHED) for task_id in named)
    return _move(project, ids, STASHED, "stash", actor, before=running)


def unstash(project: str, ids: Sequence[int] | None = None, actor: Actor = PROGRAM) -> int:
    """Unstash commands and lists. Otherwise as `stash`."""
    return _move(project, ids, UNSTASHED, "unstash", actor)


def archive(project: str, ids: Sequence[int] | None = None, actor: Actor = PROGRAM) -> int:
    """Archive completed commands. Otherwise as `stash`."""
    return _move(project, ids, ARCHIVED, "archive", actor)


def archive_old(project: str) -> int:
    """Archive some of the commands that were completed over a week ago. Returns how many."""
    before_ms = Task.objects.now_ms() - ARCHIVED_AFTER_MS
    old = available(group_of(project, CommandStatus.COMPLETED)).filter(available_at_ms__lte=before_ms)
    pages = islice(pages_of(old), PAGES_ARCHIVED)
    return by_pieces(pages, partial(_moved, group_of(project, CommandStatus.COMPLETED_ARCHIVE)))


@atomic()
def reopen(project: str, task_id: int, actor: Actor = PROGRAM) -> bool:
    """End the lease of a list whose worker is dead. If it lives after all, it ends its processes.

    Returns whether it was a running list of the project. Raises Forbidden.
    """
    must_change(project, actor)
    refuse(task_ids("task", [task_id]))
    is_done = _take_away(project, task_id, actor, CommandStatus.OPEN)
    if is_done:
        record(actor, "reopen", project, 1)
    return is_done


def _take_away(project: str, task_id: int, actor: Actor, status: CommandStatus) -> bool:
    """End the lease of a list. Returns False if it is not a running list of the project. The attempt is not counted."""
    [task] = Task.objects.find([task_id])
    is_list = task is not None and task.group == group_of(project, CommandStatus.OPEN)
    if task is None or not is_list or task.state(Task.objects.now_ms()) is not State.CLAIMED:
        return False
    found = decoded(task, CommandList.decode)
    data = found.reopened(task.claims).encode() if found else None
    change = Change(id=task.id, data=data, group=group_of(project, status), release=True)
    try:
        with atomic():
            Task.objects.commit(owner=NOBODY, updates=[change], operator=actor.operator(Ending.GIVEN_BACK))
    except CommitRefused:
        return False  # The worker is alive, and has just written the list.
    return True


def pages_in(project: str, status: CommandStatus, ids: Sequence[int] | None) -> Pages:
    """Return the ids of the tasks of this status that nobody holds: all, or those among `ids`."""
    if ids is None:
        return pages_of(available(group_of(project, status)))
    refuse(task_ids("ids", ids))
    named = available(group_of(project, status)).filter(id__in=list(ids))
    return [list(named.values_list("id", flat=True))]


def must_change(project: str, actor: Actor) -> None:
    """Raise Forbidden when the actor may not change commands."""
    actor.must_change(group_of(project, CommandStatus.NEW))


def record(actor: Actor, action: str, project: str, done: int) -> None:
    """Record a change of so many commands of the project in the audit log."""
    audit.record(actor, action, selection=f"commands of {project}", done=done)


def _move(
    project: str, ids: Sequence[int] | None, ways: Statuses, action: str, actor: Actor, *, before: int = 0
) -> int:
    """Move tasks to other statuses. `before`: how many were changed already. Returns how many there are in all."""
    must_change(project, actor)
    done = before + sum(
        by_pieces(pages_in(project, source, ids), partial(_moved, group_of(project, target)))
        for source, target in ways.items()
    )
    record(actor, action, project, done)
    return done


def _moved(group: str, ids: Sequence[int]) -> int:
    changes = [Change(id=task_id, group=group, release=True) for task_id in ids]
    return len(Task.objects.commit(owner=NOBODY, updates=changes))


FAILED = (CommandStatus.FAILED_COUNT, CommandStatus.FAILED_TIME)
ARCHIVES = dict.fromkeys((*FAILED, CommandStatus.CANCELLED), CommandStatus.FAILED_ARCHIVE) | {
    CommandStatus.COMPLETED: CommandStatus.COMPLETED_ARCHIVE,
    CommandStatus.COMPLETED_ARCHIVE: CommandStatus.COMPLETED_ARCHIVE,
}


def retry(
    project: str, ids: Sequence[int] | None = None, actor: Actor = PROGRAM, *, status: CommandStatus | None = None
) -> int:
    """Submit finished commands again, as new ones without failures; the old ones are archived.

    `ids` are those of their tasks; None: all of the status; without a status, all that failed too often or too late.
    A command gets as much time to start as it had from its creation. Returns how many were submitted again.
    Raises InvalidInput about `status` when its commands are not finished, and Forbidden.
    """
    must_change(project, actor)
    if status is not None and status not in FINAL:
        refuse([("status", sentences.one_of(ARCHIVES, status))])
    every = FAILED if ids is None else tuple(ARCHIVES)
    done = 0
    for each in every if status is None else (status,):
        # All pages first: a retried command of an archive would be found there again.
        pages = [*pages_in(project, each, ids)]
        done += by_pieces(pages, partial(_retry, project, ARCHIVES[each]), WITH_OUTPUTS)
    record(actor, "retry", project, done)
    return done


def _retry(project: str, archive: CommandStatus, ids: Sequence[int]) -> int:
    found = {task.id: (task, command) for task in tasks_with(ids) if (command := decoded(task, Command.decode))}
    if not found:
        return 0
    adds = []
    named = Batch.objects.still_open().filter(pk__in={task.batch for task, _ in found.values()})
    still_open = set(named.values_list("pk", flat=True))
    for task, command in found.values():
        now = Task.objects.now_ms() // 1_000
        until = min(now + (command.until - command.created if command.until > command.created else KEPT_S), MOST)
        new = replace(command, id=new_id(), created=now, until=until, fails=0, run=None, list="")
        is_member = task.batch in still_open and keeps_failures(task.group)
        adds.append(new_command_task(project, new, batch=task.batch if is_member else 0))
    moves = [Change(id=task_id, group=group_of(project, archive), release=True) for task_id in found]
    Task.objects.commit(owner=NOBODY, adds=adds, updates=moves)
    return len(adds)


def submit(
    project: str, submissions: Sequence[Submission], *, stashed: bool = False, owner: int = NOBODY
) -> list[Command]:
    """Add new commands to the project, all or none, in this order. `stashed` ones are not bundled into lists yet.

    Joins the caller's transaction. Raises InvalidInput that names every wrong field, as in `commands[3].cmd`.
    """
    commands = new_commands(project, submissions)
    status = CommandStatus.NEW_STASHED if stashed else CommandStatus.NEW
    Task.objects.commit(owner=owner, adds=[new_command_task(project, command, status) for command in commands])
    return commands


def submission_of(asked: SubmitRequest, scope: GroupScope, key: ResendKey | None) -> Commit:
    """Return the commit of a request. What comes then may be started at any time. Raises InvalidInput."""
    then = _later(asked.project, asked.then, CommandStatus.NEW)
    if asked.after:
        later = Plan(then=plan_of(_later(asked.project, asked.commands, asked.status)))
        change = BatchStep(asked.after, Step.ADD_LATER, later)
        return Commit(key=key, owner=asked.clientid, scope=scope, batch=change)
    adds = _tasks_of(asked.project, asked.commands, asked.status, asked.batch)
    batch = None
    if then or asked.hold:
        plan, name = Plan(steps=(Plan(then),)), f"commands of {asked.project}"
        batch = NewBatch(name=name, mark=uuid4().hex, plan=plan, hold=asked.hold)
    return Commit(key=key, owner=asked.clientid, adds=tuple(adds), scope=scope, batch=batch)


def _later(project: str, submissions: Sequence[Submission], status: CommandStatus) -> tuple[NewTask, ...]:
    """Return the tasks of commands that a batch adds."""
    at_any_time = [replace(each, until=each.until or LATEST_MS // 1_000) for each in submissions]
    return tuple(_tasks_of(project, at_any_time, status)) if at_any_time else ()


def _tasks_of(
    project: str, submissions: Sequence[Submission], status: CommandStatus, batch: int = 0
) -> Sequence[NewTask]:
    return [new_command_task(project, command, status, batch=batch) for command in new_commands(project, submissions)]


def new_commands(project: str, submissions: Sequence[Submission]) -> list[Command]:
    """Return the commands of the submissions. Raises InvalidInput as `submit` does."""
    problems = list(wrong_submissions(submissions))
    if why := why_no_project(project):
        problems.insert(0, ("project", why))
    elif not is_utf8(project):
        problems.insert(0, ("project", sentences.VALID_UTF8))
    refuse(problems)
    now = Task.objects.now_ms() // 1_000
    return [
        Command(
            id=command_id,
            **members_of(asked.line or b""),
            created=now,
            until=now + KEPT_S if asked.until is None else asked.until,
            expected_duration=EXPECTED_DURATION if asked.expected_duration is None else asked.expected_duration,
            max_fails=MAX_FAILS if asked.max_fails is None else asked.max_fails,
        )
        for asked, command_id in zip(submissions, _ids(len(submissions)), strict=True)
    ]


def new_id() -> str:
    """Return the id of a new command: the time in nanoseconds and its number of fails, 0."""
    return _ids(1)[0]


def _ids(number: int) -> list[str]:
    """Return ids with consecutive times that this process has not used yet."""
    global _newest_id
    with _ids_lock:
        first = max(time.time_ns(), _newest_id + 1)
        _newest_id = first + number - 1
    return [f"{id_ns}_0" for id_ns in range(first, first + number)]
