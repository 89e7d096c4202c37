"""How much of what became of tasks is kept, and for how long: what the settings say, and what is fixed."""

from __future__ import annotations

from django.conf import settings

FULL, FINISHED, OFF = "full", "finished", "off"
KEPT = (FULL, FINISHED, OFF)
DAYS = 7
UNDO_DAYS = 7  # Bulk operations keep what they replaced.
OPERATIONS_DAYS = 400  # Bulk operations, without that.


def kept() -> str:
    """What the trail gets: what became of every id, how tasks ended (not which id followed which), or nothing."""
    return str(getattr(settings, "TASKSTORE_HISTORY", FULL))


def days() -> int:
    return int(getattr(settings, "TASKSTORE_HISTORY_DAYS", DAYS))


def in_words() -> str:
    """Why something may be missing from the trail: `history is ...`."""
    if kept() == OFF:
        return "history is switched off"
    pruned = f"pruned after {days()} day{'s' * (days() != 1)}"
    return f"history is reduced to how tasks ended, and {pruned}" if kept() == FINISHED else f"history is {pruned}"
