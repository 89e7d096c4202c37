"""Finished commands are run once more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ..command_record import FINAL, Command, CommandStatus, group_of, new_command_task
from ..models import Task
from ..operations import NOBODY, Change
from ..records import MOST
from ..validation import refuse
from .moving import pages_in, told
from .pieces import WITH_OUTPUTS, by_pieces
from .reading import tasks_with, understood
from .submitting import KEPT_S, new_id

FAILED = (CommandStatus.FAILED_COUNT, CommandStatus.FAILED_TIME)
PUT_AWAY = dict.fromkeys(FAILED, CommandStatus.FAILED_ARCHIVE) | {
    CommandStatus.COMPLETED: CommandStatus.COMPLETED_ARCHIVE,
    CommandStatus.COMPLETED_ARCHIVE: CommandStatus.COMPLETED_ARCHIVE,
}


def retry(
    project: str,
    ids: Sequence[int] | None = None,
    status: CommandStatus | None = None,
    *,
    by: str = "",
    reason: str = "",
) -> int:
    """Submit finished commands once more, as new ones that never failed; what they were is put into an archive.

    `ids`: those of their tasks; None: all of the status; without one, all that failed too often or too late. They may
    be started for as long from now as they might from when they were created. Returns how many were submitted again.
    Raises InvalidInput about `status` when commands of it are not finished.
    """
    if status is not None and status not in FINAL:
        refuse([("status", f"one of {', '.join(PUT_AWAY)}")])
    every = FAILED if ids is None else tuple(PUT_AWAY)
    statuses = every if status is None else (status,)
    return told("retry", project, by, reason, sum(_retry_all(project, each, ids) for each in statuses))


def _retry_all(project: str, status: CommandStatus, ids: Sequence[int] | None) -> int:
    # Read to the end first: of an archive each one that is retried would come again.
    pages = [*pages_in(project, status, ids)]
    return by_pieces(pages, partial(_retry, project, PUT_AWAY[status]), WITH_OUTPUTS)


def _retry(project: str, put_away: CommandStatus, ids: Sequence[int]) -> int:
    found = {task.id: command for task in tasks_with(ids) if (command := understood(task, Command.decode))}
    if not found:
        return 0
    again = [new_command_task(project, _anew(command)) for command in found.values()]
    group = group_of(project, put_away)
    moved = [Change(id=task_id, group=group, keep_data=True, keep_error=True, release=True) for task_id in found]
    Task.objects.commit(owner=NOBODY, adds=again, updates=moved)
    return len(again)


def _anew(command: Command) -> Command:
    now = Task.objects.now_ms() // 1_000
    kept_s = command.until - command.created if command.until > command.created else KEPT_S
    return replace(command, id=new_id(), created=now, until=min(now + kept_s, MOST), fails=0, run=None, list="")
