"""What a diagnosis consists of: its kind, and a sentence in parts with a link to what helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """Diagnoses, the worst first. The last five are no trouble."""

    STALLED = "stalled"  # Tasks wait, and no worker claims them.
    LOST = "lost"  # A worker that holds tasks no longer reports.
    FAILING = "failing"
    BROKEN = "broken"  # A schedule.
    PAUSED = "paused"
    GROWING = "growing"  # More tasks enter than leave.
    RUNNING = "running"  # A bulk operation.
    LIMITED = "limited"  # As many tasks are claimed as may be.
    FAILED = "failed"  # It has nothing but tasks that have failed for good.
    WORKING = "working"
    WAITING = "waiting"
    IDLE = "idle"


KINDS = list(Kind)
CALM = {Kind.LIMITED, Kind.FAILED, Kind.WORKING, Kind.WAITING, Kind.IDLE}
# The icons of the console.
ICONS = {
    Kind.STALLED: "expired",
    Kind.LOST: "lost",
    Kind.FAILING: "failed",
    Kind.BROKEN: "failed",
    Kind.PAUSED: "paused",
    Kind.GROWING: "arrow-up",
    Kind.RUNNING: "claimed",
    Kind.LIMITED: "scheduled",
    Kind.FAILED: "failed",
    Kind.WORKING: "claimed",
    Kind.WAITING: "scheduled",
    Kind.IDLE: "done",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link to a page of the console: what its name for URLs takes, and its query."""

    words: str
    page: str
    args: tuple[object, ...] = ()
    query: Mapping[str, object] = field(default_factory=dict)
    is_change: bool = False  # It asks first, in a dialog; only an operator may.


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A sentence in parts: what, since when, why; and what to do."""

    kind: Kind
    of: Link  # The group, worker, schedule, operation or task.
    word: str = ""  # In place of that of the kind.
    since: str = ""  # "for 17 min", "by admin 3 h ago".
    why: str = ""  # "240 ready, its only worker thumbnailer-1 is lost."
    next_ms: int | None = None  # When it goes on by itself.
    advice: Link | None = None
    count: int = 1  # How many it is about.
    tasks: int = 0  # How many are concerned: of two of a kind, the one with more is worse.
    is_alarm: bool = False

    @property
    def icon(self) -> str:
        return ICONS[self.kind]

    @property
    def what(self) -> str:
        return self.word or self.kind.capitalize()

    @property
    def rest(self) -> str:
        """Return what follows `what`; empty when there is nothing to say."""
        return f"{self.since}: {self.why}".removeprefix(": ") if self.why else f"{self.since}." if self.since else ""

    @property
    def text(self) -> str:
        """Return the sentence; empty when there is nothing to say."""
        if not self.rest:
            return ""
        return f"{self.what}{' ' if self.since else ': '}{self.rest}"

    @property
    def rank(self) -> tuple[int, int, str]:
        """Return a key that sorts the worst first."""
        return KINDS.index(self.kind), -self.tasks, self.of.words
