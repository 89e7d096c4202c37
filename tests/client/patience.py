"""Waiting for what other threads and processes do."""

import time
from collections.abc import Callable

PATIENCE_S = 30


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Look again and again until it is so."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at, f"{what} did not happen in {PATIENCE_S} s"
        time.sleep(0.01)
