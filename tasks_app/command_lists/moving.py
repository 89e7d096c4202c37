"""Tasks go from group to group of their project: parked, let go on, put away, taken from a worker that is dead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice

from django.db import transaction

from .. import audit
from ..command_record import CommandStatus, group_of
from ..errors import CommitRefused
from ..models import Task
from ..operations import NOBODY, Change, Ending, Operator, State
from ..validation import refuse, task_ids
from .pieces import by_pieces
from .reading import available, pages_of

Statuses = Mapping[CommandStatus, CommandStatus]
Pages = Iterable[Sequence[int]]

STASHED: Statuses = {
    CommandStatus.NEW: CommandStatus.NEW_STASHED,
    CommandStatus.OPEN: CommandStatus.OPEN_STASHED,
}
UNSTASHED: Statuses = {stashed: status for status, stashed in STASHED.items()}
ARCHIVED: Statuses = {CommandStatus.COMPLETED: CommandStatus.COMPLETED_ARCHIVE}

ARCHIVED_AFTER_MS = 7 * 86_400_000  # What is completed.
PAGES_ARCHIVED = 2  # In one round of the server.


def stash(project: str, ids: Sequence[int] | None = None, *, by: str = "", reason: str = "") -> int:
    """Park new commands and open lists. `ids`: those of their tasks; None: all. `by`: whom the audit names.

    Lists that are running go on. Returns how many tasks were parked.
    """
    return told("stash", project, by, reason, _move(project, ids, STASHED))


def unstash(project: str, ids: Sequence[int] | None = None, *, by: str = "", reason: str = "") -> int:
    """Let parked commands and lists go on. Otherwise as `stash`."""
    return told("unstash", project, by, reason, _move(project, ids, UNSTASHED))


def archive(project: str, ids: Sequence[int] | None = None, *, by: str = "", reason: str = "") -> int:
    """Put completed commands away. Otherwise as `stash`."""
    return told("archive", project, by, reason, _move(project, ids, ARCHIVED))


def archive_old(project: str) -> int:
    """Put some of the commands away that were completed a week ago. Returns how many."""
    before_ms = Task.objects.now_ms() - ARCHIVED_AFTER_MS
    old = available(group_of(project, CommandStatus.COMPLETED)).filter(available_at_ms__lte=before_ms)
    pages = islice(pages_of(old), PAGES_ARCHIVED)
    return by_pieces(pages, partial(_moved, group_of(project, CommandStatus.COMPLETED_ARCHIVE)))


@transaction.atomic
def reopen(project: str, task_id: int, *, by: str = "", reason: str = "") -> bool:
    """Open a list at once whose worker is known to be dead: what that worker commits for it is refused then.

    Says whether it was a running list of the project. `by`: whom the trail and the audit name.
    """
    refuse(task_ids("task", [task_id]))
    [task] = Task.objects.find([task_id])
    is_list = task is not None and task.group == group_of(project, CommandStatus.OPEN)
    if task is None or not is_list or task.state(Task.objects.now_ms()) is not State.CLAIMED:
        return False
    operator = Operator(name=by, ending=Ending.GIVEN_BACK, reason=reason)
    change = Change(id=task.id, keep_data=True, keep_error=True, release=True)
    try:
        with transaction.atomic():
            Task.objects.commit(owner=NOBODY, updates=[change], operator=operator)
    except CommitRefused:
        return False  # The worker is alive, and has closed it at this moment.
    told("reopen", project, by, reason, 1)
    return True


def pages_in(project: str, status: CommandStatus, ids: Sequence[int] | None) -> Pages:
    """The ids of the tasks of this status that nobody holds: all, or those among `ids`."""
    if ids is None:
        return pages_of(available(group_of(project, status)))
    refuse(task_ids("ids", ids))
    named = available(group_of(project, status)).filter(id__in=list(ids))
    return [list(named.values_list("id", flat=True))]


def told(action: str, project: str, by: str, reason: str, done: int) -> int:
    """Write down what somebody did; nothing for code that does it in nobody's name."""
    if by:
        audit.record(actor=by, action=action, selection=f"commands of {project}", reason=reason, done=done)
    return done


def _move(project: str, ids: Sequence[int] | None, ways: Statuses) -> int:
    return sum(
        by_pieces(pages_in(project, source, ids), partial(_moved, group_of(project, target)))
        for source, target in ways.items()
    )


def _moved(group: str, ids: Sequence[int]) -> int:
    changes = [Change(id=task_id, group=group, keep_data=True, keep_error=True, release=True) for task_id in ids]
    return len(Task.objects.commit(owner=NOBODY, updates=changes))
