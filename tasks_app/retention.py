"""How much of what became of tasks and of what people did is kept, and for how long."""

from __future__ import annotations

from django.conf import settings

FULL, FINISHED, OFF = "full", "finished", "off"
KEPT = (FULL, FINISHED, OFF)
DAYS = 7
AUDIT_DAYS = 400
UNDO_DAYS = 7  # Bulk operations keep what they replaced.
OPERATIONS_DAYS = 400  # Bulk operations, without that.


def kept() -> str:
    """What the trail gets: what became of every id, how tasks ended (not which id followed which), or nothing."""
    return str(getattr(settings, "TASKSTORE_HISTORY", FULL))


def days() -> int:
    return int(getattr(settings, "TASKSTORE_HISTORY_DAYS", DAYS))


def audit_days() -> int:
    """For how long the audit is kept. The database refuses to delete what is younger (guards.py)."""
    return int(getattr(settings, "TASKSTORE_AUDIT_DAYS", AUDIT_DAYS))


def in_words() -> str:
    """Why something may be missing from the trail: `history is ...`."""
    if kept() == OFF:
        return "history is switched off"
    pruned = f"pruned after {days()} day{'s' * (days() != 1)}"
    return f"history is reduced to how tasks ended, and {pruned}" if kept() == FINISHED else f"history is {pruned}"
