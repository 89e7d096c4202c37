"""The statuses of commands, in the words and the picture of the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskstore.types.command_record import OF_LISTS, CommandStatus

# The state of a task whose glyph and colour a status has.
LOOKS = {
    CommandStatus.NEW: "ready",
    CommandStatus.NEW_STASHED: "paused",
    CommandStatus.OPEN: "ready",
    CommandStatus.OPEN_STASHED: "paused",
    CommandStatus.RUNNING: "claimed",
    CommandStatus.CLOSED: "scheduled",
    CommandStatus.COMPLETED: "finished",
    CommandStatus.COMPLETED_ARCHIVE: "finished",
    CommandStatus.FAILED_ARCHIVE: "expired",
    CommandStatus.FAILED_TIME: "failed",
    CommandStatus.FAILED_COUNT: "failed",
}
# What becomes of a command there, or became of it.
MEANINGS = {
    CommandStatus.NEW: "waiting for a list",
    CommandStatus.NEW_STASHED: "set aside",
    CommandStatus.OPEN: "waiting for a worker",
    CommandStatus.OPEN_STASHED: "lists set aside",
    CommandStatus.RUNNING: "with a worker",
    CommandStatus.CLOSED: "saving results",
    CommandStatus.COMPLETED: "done",
    CommandStatus.COMPLETED_ARCHIVE: "done, archived",
    CommandStatus.FAILED_ARCHIVE: "failed, retried",
    CommandStatus.FAILED_TIME: "missed deadline",
    CommandStatus.FAILED_COUNT: "failed too often",
}
# The way of a command, and below it what leaves the way: each under the status from which it leaves.
WAY = (
    CommandStatus.NEW,
    CommandStatus.OPEN,
    CommandStatus.RUNNING,
    CommandStatus.CLOSED,
    CommandStatus.COMPLETED,
    CommandStatus.COMPLETED_ARCHIVE,
)
BESIDE = (
    CommandStatus.NEW_STASHED,
    CommandStatus.OPEN_STASHED,
    CommandStatus.FAILED_ARCHIVE,
    CommandStatus.FAILED_TIME,
    CommandStatus.FAILED_COUNT,
)
# In the list of the projects: what goes on, what has come of it, what rests.
COLUMNS = (
    CommandStatus.NEW,
    CommandStatus.OPEN,
    CommandStatus.RUNNING,
    CommandStatus.CLOSED,
    CommandStatus.COMPLETED,
    CommandStatus.FAILED_COUNT,
    CommandStatus.FAILED_TIME,
    CommandStatus.NEW_STASHED,
    CommandStatus.OPEN_STASHED,
    CommandStatus.COMPLETED_ARCHIVE,
    CommandStatus.FAILED_ARCHIVE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A status in the picture of a project's flow."""

    status: CommandStatus
    look: str
    meaning: str
    commands: int
    lists: int | None  # None: no lists lie there.


def status_word(status: str) -> str:
    """completed archive"""
    return status.replace("_", " ")


def flow_of(counts: Mapping[str, int], lists: Mapping[str, int], statuses: Sequence[CommandStatus]) -> list[Step]:
    return [
        Step(
            status=status,
            look=LOOKS[status],
            meaning=MEANINGS[status],
            commands=counts.get(status, 0),
            lists=lists.get(status, 0) if status in OF_LISTS else None,
        )
        for status in statuses
    ]
