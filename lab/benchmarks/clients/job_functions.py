"""The jobs, as each worker imports them."""

from __future__ import annotations

import time
from pathlib import Path


def nothing(data: str) -> None:
    """As quick as can be."""


def look_at_clock(file: str) -> None:
    """Write down when it ran, by the clock that all processes share."""
    draft = Path(file).with_suffix(".draft")
    draft.write_text(repr(time.monotonic()))
    draft.replace(file)
