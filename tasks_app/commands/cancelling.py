"""Cancel commands, also single ones of a list that a worker runs."""

from __future__ import annotations

import time
from collections.abc import Iterable

from taskstore.errors import CommitRefused, StoreBusy
from taskstore.types.cancelling import error_of
from taskstore.types.command_record import CommandList, CommandStatus, list_labels, new_command_task
from taskstore.types.commands import CommandSeen
from taskstore.types.tasks import Change, Ending

from ..core.actors import PROGRAM, Actor
from ..database import atomic
from ..managers import PATIENCE_S
from ..models import Task
from .changes import must_change, record
from .looking import command
from .summaries import decoded

PAUSE_S = 0.01  # Before another look.
ALONE = {CommandStatus.NEW, CommandStatus.NEW_STASHED}
IN_LISTS = {CommandStatus.OPEN, CommandStatus.OPEN_STASHED, CommandStatus.RUNNING}


def cancel(project: str, command_ids: Iterable[str], actor: Actor = PROGRAM) -> int:
    """Cancel commands. A running one is ended by its worker; the other commands of its list go on.

    Returns how many were cancelled; the others have ended already, or do not exist. Raises Forbidden, and StoreBusy
    when workers keep changing their lists.
    """
    must_change(project, actor)
    done = sum(_cancel(project, command_id, actor) for command_id in dict.fromkeys(command_ids))
    if done:
        record(actor, "cancel", project, done)
    return done


def may_be_cancelled(seen: CommandSeen) -> bool:
    return seen.status in ALONE | IN_LISTS and seen.run is None


def _cancel(project: str, command_id: str, actor: Actor) -> bool:
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        found = command(project, command_id, actor.scope)
        if found is None or not may_be_cancelled(found.newest):
            return False
        try:
            with atomic():
                if _take_out(project, found.newest, actor):
                    return True
        except CommitRefused:
            pass  # Its worker has just written the list.
        time.sleep(PAUSE_S)
    raise StoreBusy("workers keep changing these commands: try again later")


def _take_out(project: str, seen: CommandSeen, actor: Actor) -> bool:
    """Cancel a command where it was seen. Returns False if it is no longer there."""
    [task] = Task.objects.find([seen.task], actor.scope)
    made = decoded(task, CommandList.decode) if task and seen.status in IN_LISTS else None
    left = tuple(each for each in made.commands if each.first_id != seen.first_id) if made else ()
    if task is None or (seen.status in IN_LISTS and (not made or len(left) == len(made.commands))):
        return False
    if not made or not left:
        return bool(Task.objects.cancel([task.id], by=actor.name, reason=actor.reason, scope=actor.scope))
    taken = [each for each in made.commands if each not in left]
    rest = made.with_only(left)
    # It stays leased to its worker, which learns that the id was cancelled.
    kept = {"timespec_ms": task.available_at_ms} if task.leased else {"release": True}
    Task.objects.commit(
        owner=task.owner,
        adds=[
            new_command_task(
                project, each, CommandStatus.CANCELLED, error_of(actor.name, actor.reason), batch=task.batch
            )
            for each in taken
        ],
        updates=[Change(id=task.id, data=rest.encode(), labels=list_labels(rest), **kept)],
        scope=actor.scope,
        operator=actor.operator(Ending.CANCELLED),
    )
    return True
