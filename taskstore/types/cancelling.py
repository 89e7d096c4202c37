"""What becomes of a task that is cancelled. Pure."""

from __future__ import annotations

from .command_record import cancelled_group
from .job_record import JobStatus, finished_group, queue_group, queue_of
from .tasks import Change


def kept_in(group: str) -> str | None:
    """Return the group that keeps what is cancelled in this group; None where it is deleted.

    Only of unfinished jobs and commands is anything kept. A cancelled list moves to the closed ones, to be settled.
    """
    queue = queue_of(group)
    if queue and group == queue_group(queue):
        return finished_group(queue, JobStatus.CANCELLED)
    return cancelled_group(group)


def cancelled(task_id: int, group: str, error: str) -> Change | int:
    """Return what cancels an unfinished task: a change of a job or a command, otherwise its id, to delete it."""
    kept = kept_in(group)
    return task_id if kept is None else Change(id=task_id, group=kept, error=error, release=True)


def error_of(by: str, reason: str) -> str:
    """Return the error of a job or a command that was cancelled: it says who did it, and why."""
    return " ".join(["cancelled", *(["by", by] if by else [])]) + (f": {reason}" if reason else "")
