"""How much of what became of tasks and of what people did is kept, and for how long."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from django.conf import settings

FULL, FINISHED, OFF = "full", "finished", "off"
KEPT = (FULL, FINISHED, OFF)
DAYS = 7
AUDIT_DAYS = 400
KEY_SECONDS = 3_600
UNDO_DAYS = 7  # Bulk operations keep what they replaced.
OPERATIONS_DAYS = 400  # Bulk operations, without that.
# Finished jobs and commands.
GROUPS = (
    "jobs/*/succeeded=7d jobs/*/failed=30d jobs/*/cancelled=30d commands/*/completed_archive=30d "
    "commands/*/failed_archive=30d commands/*/failed_time=90d commands/*/failed_count=90d commands/*/cancelled=90d"
)

FOR_GOOD = "forever"
UNITS_MS = {"s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
LONGEST_MS = 100_000 * UNITS_MS["d"]


def fits(pattern: str, name: str) -> bool:
    """Return whether the pattern describes the name. A star stands for any characters."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class Rule:
    """For how long the tasks of some groups are kept."""

    pattern: str  # Of names; a star stands for any characters.
    kept: str  # As it was written: 7d, forever.

    @property
    def start(self) -> str:
        """How the names begin of all groups that it is about."""
        return self.pattern.partition("*")[0]

    @property
    def kept_ms(self) -> int | None:
        """None: for good."""
        if self.kept == FOR_GOOD:
            return None
        number, unit = re.fullmatch(r"([0-9]+)(\w+)", self.kept).groups()  # type: ignore[union-attr]
        return int(number) * UNITS_MS[unit]


def kept() -> str:
    """What the trail gets: what became of every id, how tasks ended (not which id followed which), or nothing."""
    return str(getattr(settings, "TASKSTORE_HISTORY", FULL))


def days() -> int:
    return int(getattr(settings, "TASKSTORE_HISTORY_DAYS", DAYS))


def most_bytes() -> int:
    """How large the history may become on PostgreSQL, by whole days; 0: as large as it likes."""
    return int(getattr(settings, "TASKSTORE_HISTORY_BYTES", 0))


def audit_days() -> int:
    """For how long the audit log is kept. The database refuses to delete what is younger (triggers.py)."""
    return int(getattr(settings, "TASKSTORE_AUDIT_DAYS", AUDIT_DAYS))


def key_ms() -> int:
    """For how long the answer to a request with an idempotency key is kept."""
    return int(getattr(settings, "TASKSTORE_KEY_SECONDS", KEY_SECONDS)) * 1_000


def in_words() -> str:
    """Why something may be missing from the trail: `history is ...`."""
    if kept() == OFF:
        return "history is switched off"
    pruned = f"pruned after {'at most ' * bool(most_bytes())}{days()} day{'s' * (days() != 1)}"
    return f"history keeps only how tasks ended, and is {pruned}" if kept() == FINISHED else f"history is {pruned}"


def rules() -> Sequence[Rule]:
    """For how long tasks lie in their groups. Of several that are about a group the first one counts."""
    return rules_in(str(getattr(settings, "TASKSTORE_RETENTION", GROUPS)))


@cache  # There is one text, which is read for every round.
def rules_in(text: str) -> Sequence[Rule]:
    """Rules that are written as `PATTERN=7d PATTERN=forever`. Raises ValueError that says which one is wrong."""
    return [_rule(word) for word in text.split()]


def rule_of(group: str) -> Rule | None:
    """For how long the tasks of a group lie there; None: for good, as nothing is said of it."""
    return next((rule for rule in rules() if fits(rule.pattern, group)), None)


def _rule(word: str) -> Rule:
    pattern, _, kept = word.rpartition("=")
    duration = re.fullmatch(rf"([0-9]{{1,9}})({'|'.join(UNITS_MS)})", kept, re.ASCII)
    is_short = duration is not None and 0 < int(duration[1]) * UNITS_MS[duration[2]] <= LONGEST_MS
    if not pattern or not (is_short or kept == FOR_GOOD):
        raise ValueError(
            f'"{word}" is not a rule: write GROUP=7d with one of {", ".join(UNITS_MS)}, or GROUP={FOR_GOOD}; '
            "a star in the group's name matches any characters"
        )
    return Rule(pattern, kept)
