"""Group failed tasks by error: errors that differ only in numbers, ids and names share a signature."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from django.db.models.functions import Left, Right

from taskstore.types.tasks import Standing

from ..database.time_limits import TookTooLong, at_most
from ..models import Task

MOST = 10_000  # Failed tasks that are read, the newest first.
LIMIT_S = 2.0
NAMED_GROUPS = 3  # Groups that are listed with a signature.
READ_CHARACTERS = 300
TRACEBACK = "Traceback (most recent call last)"
HOUR_MS, DAY_MS, WEEK_MS = 3_600_000, 86_400_000, 604_800_000

# The parts of an error that vary between tasks: quoted text, addresses, paths, ids, numbers.
QUOTED = r""" "[^"]*" | '[^']*' """
OTHERS = r"""
    \b\w+://\S+ | [\w.+-]+@[\w.-]+ | (?<![\w*])/[\w.-]+(?:/[\w.-]*)+
    | \b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b
    | \b(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{6,}\b | 0x[0-9a-fA-F]+
    | [0-9]+(?:[.,:][0-9]+)*
"""
VARIES = re.compile(f"{QUOTED} | {OTHERS}", re.VERBOSE)
VARIES_IN_QUOTES = re.compile(OTHERS, re.VERBOSE)
# What a KeyError says is one quoted text: with a star for it, each of them would be like any other.
ALL_QUOTED = re.compile(r"""(?:[\w.]+:\s+)?(["'])(?:(?!\1).)*\1""")


@dataclass(slots=True, kw_only=True)
class Signature:
    """An error with `*` for the varying parts, and the failed tasks that have it."""

    text: str
    last_hour: int = 0
    last_day: int = 0
    last_week: int = 0
    total: int = 0
    first_ms: int = 0
    last_ms: int = 0
    groups: set[str] = field(default_factory=set)

    @property
    def some_groups(self) -> list[str]:
        return sorted(self.groups)[:NAMED_GROUPS]

    @property
    def more_groups(self) -> int:
        return max(0, len(self.groups) - NAMED_GROUPS)

    def count(self, group: str, failed_at_ms: int, now_ms: int) -> None:
        age_ms = now_ms - failed_at_ms
        self.last_hour += age_ms < HOUR_MS
        self.last_day += age_ms < DAY_MS
        self.last_week += age_ms < WEEK_MS
        self.total += 1
        self.first_ms = min(self.first_ms or failed_at_ms, failed_at_ms)
        self.last_ms = max(self.last_ms, failed_at_ms)
        self.groups.add(group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """The signatures, the most frequent first."""

    signatures: list[Signature]
    looked_at: int
    is_whole: bool  # Whether every failed task was read; false when there are too many.
    at_ms: int


def failures(group: str | None = None, most: int = 0) -> Failures | None:
    """Return the failures of this group or of all; None when the database took too long. `most`: to read, 0: MOST."""
    most = most or MOST
    now_ms = Task.objects.now_ms()
    # What was cancelled says by whom where others say their error.
    failed = Task.objects.get_queryset().with_error().exclude(standing=Standing.FINISHED).order_by("-id")
    if group is not None:
        failed = failed.in_group(group)
    beginning, end = Left("error", READ_CHARACTERS), Right("error", READ_CHARACTERS)
    newest = failed.values_list("group", beginning, end, "made_at_ms")[: most + 1]
    try:
        with at_most(LIMIT_S, using=Task.objects.db):
            rows = list(newest)
    except TookTooLong:
        return None
    signatures: dict[str, Signature] = {}
    for of_group, start, rest, failed_at_ms in rows[:most]:
        text = signature_of(start, rest)
        signatures.setdefault(text, Signature(text=text)).count(of_group, failed_at_ms, now_ms)
    return Failures(
        signatures=sorted(signatures.values(), key=lambda each: (-each.total, each.text)),
        looked_at=min(len(rows), most),
        is_whole=len(rows) <= most,
        at_ms=now_ms,
    )


def signature_of(beginning: str, end: str) -> str:
    """Return the first line of an error, or the last one of a traceback, with `*` for the varying parts."""
    lines = [line.strip() for line in (end if beginning.startswith(TRACEBACK) else beginning).splitlines()]
    filled = [line for line in lines if line] or [""]
    line = filled[-1] if beginning.startswith(TRACEBACK) else filled[0]
    varies = VARIES_IN_QUOTES if ALL_QUOTED.fullmatch(line) else VARIES
    return re.sub(r"\*(?:\s*\*)+", "*", varies.sub("*", line))
