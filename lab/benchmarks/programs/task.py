"""What every program of a worker does with a task, and what it is to do itself."""

import os
import random
import time
from collections.abc import Iterator

QUEUE = "bench"
CHUNK = 1_000
IDLE_S = (0.2, 0.5)  # Workers have had nothing to do for a random time between these.
NOTHING = "x" * 100
ADDRESS, DO, NUMBER = os.environ["ADDRESS"], os.environ["DO"], int(os.environ["NUMBER"])
IS_ADDING = DO in ("add", "wake")


def run(payload: str) -> None:
    """Do nothing, or write down how long it took to start."""
    if payload != NOTHING:
        with open(os.environ["STARTED"], "a") as file:
            file.write(f"{time.monotonic() - float(payload)}\n")


def batches() -> Iterator[list[str]]:
    """Yield the payloads of the tasks to add: many at once, or one after the other to idle workers."""
    if DO == "add":
        for start in range(0, NUMBER, CHUNK):
            yield [NOTHING] * min(CHUNK, NUMBER - start)
        return
    yield [NOTHING]  # What adds is connected then.
    for _ in range(NUMBER):
        time.sleep(random.uniform(*IDLE_S))  # noqa: S311 - no secret.
        yield [str(time.monotonic())]
