"""How the console shows the statuses of commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskstore.types.command_record import OF_LISTS, CommandStatus

# The task state whose icon and colour a status uses.
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
MEANINGS = {
    CommandStatus.NEW: "waiting for a list",
    CommandStatus.NEW_STASHED: "held back",
    CommandStatus.OPEN: "waiting for a worker",
    CommandStatus.OPEN_STASHED: "lists held back",
    CommandStatus.RUNNING: "with a worker",
    CommandStatus.CLOSED: "saving results",
    CommandStatus.COMPLETED: "done",
    CommandStatus.COMPLETED_ARCHIVE: "done, archived",
    CommandStatus.FAILED_ARCHIVE: "failed, retried",
    CommandStatus.FAILED_TIME: "missed deadline",
    CommandStatus.FAILED_COUNT: "failed too often",
}
# The diagram: the normal course of a command, and below it the exits, each under the status that it leaves.
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
# The columns of the list of projects: unfinished, finished, set aside.
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
    """A status in the diagram of a project."""

    status: CommandStatus
    look: str
    meaning: str
    commands: int
    lists: int | None  # None: commands of this status are not in lists.


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
