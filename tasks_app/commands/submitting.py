"""New commands for a project."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

from taskstore.errors import refuse
from taskstore.types import sentences
from taskstore.types.command_record import LONGEST_CMD, Command, CommandStatus, new_command_task, why_no_project
from taskstore.types.commands import Submission
from taskstore.types.tasks import NOBODY, Problem

from ..core.validation import LATEST_MS, is_utf8
from ..models import Task

MOST_AT_ONCE = 1_000
EXPECTED_DURATION = 60  # Seconds.
KEPT_S = 7 * 24 * 3_600  # Until when it may be started, from now.
MAX_FAILS = 3
LONGEST_DURATION = 366 * 24 * 3_600  # Seconds.
MOST_FAILS = 1_000

_newest_id = 0
_ids_lock = threading.Lock()


def submit(
    project: str, submissions: Sequence[Submission], *, stashed: bool = False, owner: int = NOBODY
) -> list[Command]:
    """Add them to the new commands of the project, all or none, in this order. `stashed`: no list is made of them yet.

    Joins the caller's transaction. Raises InvalidInput that names every wrong field, as in `commands[3].cmd`.
    """
    commands = new_commands(project, submissions)
    status = CommandStatus.NEW_STASHED if stashed else CommandStatus.NEW
    Task.objects.commit(owner=owner, adds=[new_command_task(project, command, status) for command in commands])
    return commands


def new_commands(project: str, submissions: Sequence[Submission]) -> list[Command]:
    """What is submitted, as it will be added. Raises InvalidInput as `submit` does."""
    refuse(_problems(project, submissions))
    now = Task.objects.now_ms() // 1_000
    return [_command(each, id_ns, now) for each, id_ns in zip(submissions, _ids(len(submissions)), strict=True)]


def new_id() -> str:
    """The id of a command that has never failed: the time in nanoseconds."""
    return _named(_ids(1)[0])


def _ids(number: int) -> range:
    """Times in nanoseconds, one after the other, that this process has not given out yet."""
    global _newest_id
    with _ids_lock:
        first = max(time.time_ns(), _newest_id + 1)
        _newest_id = first + number - 1
    return range(first, first + number)


def _named(id_ns: int) -> str:
    return f"{id_ns}_0"


def _command(asked: Submission, id_ns: int, now: int) -> Command:
    return Command(
        id=_named(id_ns),
        cmd=asked.cmd,
        created=now,
        until=now + KEPT_S if asked.until is None else asked.until,
        expected_duration=EXPECTED_DURATION if asked.expected_duration is None else asked.expected_duration,
        max_fails=MAX_FAILS if asked.max_fails is None else asked.max_fails,
    )


def _problems(project: str, submissions: Sequence[Submission]) -> Iterator[Problem]:
    if why := why_no_project(project):
        yield "project", why
    elif not is_utf8(project):
        yield "project", sentences.VALID_UTF8
    yield from wrong_submissions(submissions)


def wrong_submissions(submissions: Sequence[Submission]) -> Iterator[Problem]:
    """What is wrong with them, by the path of the field."""
    if not 1 <= len(submissions) <= MOST_AT_ONCE:
        yield "commands", f"must have between 1 and {MOST_AT_ONCE} commands, not {len(submissions)}"
    for place, asked in enumerate(submissions[:MOST_AT_ONCE]):
        for name, right in _wrong(asked):
            yield f"commands[{place}].{name}", right


def _wrong(asked: Submission) -> Iterator[Problem]:
    if why := why_no_line(asked.cmd):
        yield "cmd", why
    for name, least, most in (
        ("expected_duration", 1, LONGEST_DURATION),
        ("until", 1, LATEST_MS // 1_000),
        ("max_fails", 1, MOST_FAILS),
    ):
        value = getattr(asked, name)
        if value is not None and not least <= value <= most:
            yield name, sentences.between(least, most, value)


def why_no_line(cmd: str) -> str | None:
    """Why this can't be the line of a command; None when it can."""
    if not cmd.strip() or any(sign in cmd for sign in "\n\r\0"):
        return "must be one command line, not empty and without NUL"
    if not is_utf8(cmd):
        return sentences.VALID_UTF8
    size = len(cmd.encode())
    return sentences.at_most(LONGEST_CMD, "bytes", size) if size > LONGEST_CMD else None
