"""What becomes of the commands of closed lists."""

from __future__ import annotations

from ..command_record import CommandList, CommandStatus, group_of, new_command_task, settled
from ..errors import CommitRefused, InvalidInput
from ..models import Task
from ..operations import NOBODY
from .reading import available, ids_of, leave_alone, understood

MOST_AT_ONCE = 100  # Lists of one round.


def process_closed(project: str, *, limit: int = MOST_AT_ONCE) -> int:
    """Settle what became of the commands of up to `limit` closed lists, each list in one commit.

    Returns how many lists were settled. Any number of processes may do it at once.
    """
    ids = ids_of(available(group_of(project, CommandStatus.CLOSED)), limit)
    # One by one: each may hold as many bytes as a task can.
    return sum(_process(project, task_id) for task_id in ids)


def _process(project: str, task_id: int) -> bool:
    [task] = Task.objects.find([task_id])
    closed = understood(task, CommandList.decode) if task else None
    if task is None or closed is None:
        return False
    now = Task.objects.now_ms() // 1_000
    fates = [new_command_task(project, command, status) for status, command in settled(closed, now)]
    try:
        Task.objects.commit(owner=NOBODY, adds=fates, deletes=[task_id])
    except CommitRefused:
        return False  # Somebody else was quicker.
    except InvalidInput as problem:  # Made by hand, with what no task can have.
        leave_alone(task.id, task.group, problem)
        return False
    return True
