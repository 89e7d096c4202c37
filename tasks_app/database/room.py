"""The settings for the size of answers, and a place in the room of this process."""

from __future__ import annotations

import time

from django.conf import settings

from taskstore.errors import StoreBusy

from ..core.room import LARGE_BYTES, Place, room
from .batch import Undecided
from .dialect import PATIENCE_S

LOOK_EVERY_S = 0.02
MOST_BYTES, MOST_BYTES_TOGETHER = 64 * 2**20, 192 * 2**20


def most_bytes() -> int:
    """How many bytes an answer may have."""
    return int(getattr(settings, "TASKSTORE_MAX_ANSWER_BYTES", MOST_BYTES))


def place_for(size: int) -> Place | None:
    """Take a place for an answer of so many bytes; None when there is no room now. A small one takes nothing."""
    taken = min(size, most_bytes()) if size > LARGE_BYTES else 0
    return room.take(taken, int(getattr(settings, "TASKSTORE_MAX_ANSWERS_BYTES", MOST_BYTES_TOGETHER)))


def waited_place(size: int) -> Place:
    """Take a place for an answer, waiting for one in a thread. Raises StoreBusy when there is none for too long."""
    until_s = time.monotonic() + PATIENCE_S
    while (place := place_for(size)) is None:
        if time.monotonic() > until_s:
            raise StoreBusy(Undecided.CROWDED.value)
        time.sleep(LOOK_EVERY_S)
    return place
