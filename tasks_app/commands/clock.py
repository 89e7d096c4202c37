"""The time as commands have it."""

from __future__ import annotations

import time


def now_s() -> int:
    """Whole seconds since the Epoch."""
    return int(time.time())
