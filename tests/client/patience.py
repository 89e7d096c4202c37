"""Waiting for what other threads and processes do."""

import threading
import time
from collections.abc import Callable

PATIENCE_S = 30
WORKERS_THREADS = ("cancelled", "claims", "heartbeat", "keeper", "results", "work ")


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Look again and again until it is so."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at, f"{what} did not happen in {PATIENCE_S} s"
        time.sleep(0.01)


def wait_for_last_requests() -> None:
    """Of workers that have ended: on a client that was closed they would open a connection that nobody closes."""
    for thread in threading.enumerate():
        if thread.name.startswith(WORKERS_THREADS):
            thread.join(PATIENCE_S)
