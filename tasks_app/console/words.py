"""Format numbers, times and statuses for people; parse the texts of forms."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from taskstore.types.command_record import OF_LISTS, CommandStatus
from taskstore.units import ago, duration, number

from ..forms import sentence

# Each status: the task state whose icon and colour it uses, and its meaning.
STATUSES = {
    CommandStatus.NEW: ("ready", "waiting for a list"),
    CommandStatus.NEW_STASHED: ("paused", "held back"),
    CommandStatus.OPEN: ("ready", "waiting for a worker"),
    CommandStatus.OPEN_STASHED: ("paused", "lists held back"),
    CommandStatus.RUNNING: ("claimed", "with a worker"),
    CommandStatus.CLOSED: ("scheduled", "saving results"),
    CommandStatus.COMPLETED: ("finished", "done"),
    CommandStatus.COMPLETED_ARCHIVE: ("finished", "done, archived"),
    CommandStatus.FAILED_ARCHIVE: ("expired", "failed, retried"),
    CommandStatus.FAILED_TIME: ("failed", "missed deadline"),
    CommandStatus.FAILED_COUNT: ("failed", "failed too often"),
    CommandStatus.CANCELLED: ("paused", "will not run"),
}
LOOKS = {status: look for status, (look, _) in STATUSES.items()}
# The diagram: the normal course of a command, and below it the exits, each under the status that it leaves.
WAY = [CommandStatus(each) for each in ("new", "open", "running", "closed", "completed", "completed_archive")]
BESIDE = [
    CommandStatus(each)
    for each in ("new_stashed", "open_stashed", "cancelled", "failed_archive", "failed_time", "failed_count")
]
# The columns of the list of projects: unfinished, finished, held back.
COLUMNS = [*WAY[:5], *reversed(BESIDE[4:]), BESIDE[2], *BESIDE[:2], WAY[5], BESIDE[3]]


def sentences(texts: Iterable[str]) -> str:
    """Join the errors of a field, each as a sentence."""
    return " ".join(map(sentence, texts))


def thousands(value: int) -> list[str]:
    """Split the digits into groups of three: "48", "201", "883"."""
    return f"{value:,}".split(",")


def rate(per_minute: float) -> str:
    """Format a rate as 0, 0.4, 7.5 or 1 204."""
    return f"{per_minute:.1f}".removesuffix(".0") if per_minute < 9.95 else number(round(per_minute))


def drain(waiting: int, in_per_minute: float, out_per_minute: float) -> str:
    """Return the time until nothing waits at the present rates: 3 min, growing, steady, or — when nothing moves."""
    if not waiting or not (in_per_minute or out_per_minute):
        return "—"
    net = out_per_minute - in_per_minute
    if net < 0:
        return "growing"
    if not net:
        return "steady"
    left_s = round(waiting / net * 60)
    return duration(left_s * 1_000) if left_s else "—"


def now_ms() -> int:
    """Return the time by the clock of this server."""
    return time.time_ns() // 1_000_000


def lease(ends_at_ms: int, now_ms: int) -> str:
    """Say when a lease ends: ends in 2 min, ended 38 s ago."""
    return f"{'ends' if ends_at_ms > now_ms else 'ended'} {ago(ends_at_ms, now_ms)}"


def exact(at_ms: int) -> str:
    """Format a time as 2026-11-20 14:02:11.408 UTC."""
    return f"{_moment(at_ms):%Y-%m-%d %H:%M:%S}.{at_ms % 1_000:03} UTC"


def clock(at_ms: int) -> str:
    """Format a time as 14:02:11 UTC."""
    return f"{_moment(at_ms):%H:%M:%S} UTC"


def iso(at_ms: int) -> str:
    """Format a time for machines, as 2026-11-20T14:02:11.408Z."""
    return f"{_moment(at_ms):%Y-%m-%dT%H:%M:%S}.{at_ms % 1_000:03}Z"


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms // 1_000, tz=UTC)


class Step(NamedTuple):
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
        Step(status, *STATUSES[status], counts.get(status, 0), lists.get(status, 0) if status in OF_LISTS else None)
        for status in statuses
    ]
