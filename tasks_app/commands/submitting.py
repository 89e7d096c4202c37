"""Submit new commands to a project."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from taskstore.errors import refuse
from taskstore.types import sentences
from taskstore.types.checks import is_utf8
from taskstore.types.command_record import Command, CommandStatus, new_command_task, why_no_project
from taskstore.types.commands import Submission, wrong_submissions
from taskstore.types.tasks import NOBODY

from ..models import Task

EXPECTED_DURATION = 60  # Seconds.
KEPT_S = 7 * 24 * 3_600  # How long a command may wait for its start.
MAX_FAILS = 3

_newest_id = 0
_ids_lock = threading.Lock()


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
            cmd=asked.cmd,
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
