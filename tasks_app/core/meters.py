"""What the processes of a server have done since it began, and what they have to do now: whole numbers in memory.

Each process writes a row of its own, and whoever is asked adds up all of them. A process that was killed leaves its
row behind, and the one that takes its place goes on from there, so that no sum ever falls while the server runs.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence
from mmap import mmap
from tempfile import TemporaryFile
from threading import Lock

from taskstore.errors import CommitRefused, Forbidden, InvalidInput, TaskStoreError

from .tally import Work

# Why something was refused. Each has its row in docs/metrics.md.
REASONS = (
    *("gone", "owned", "depends", "bugs"),
    *("key_reused", "busy", "unavailable", "commit_unknown"),
    *("invalid", "limit", "unauthenticated", "forbidden", "throttled"),
)
# Bounds of histograms: their buckets hold what is at most so much, the last one the rest.
BATCH_OPERATIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
BATCH_US = (500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000)
HISTOGRAMS = {"batch_operations": BATCH_OPERATIONS, "batch_us": BATCH_US, "alone_us": BATCH_US}
# What comes and goes.
LEVELS = ("processes", "waiting_claims", "queued_operations", "websockets")

NAMES = (
    *Work._fields,
    *REASONS,
    *LEVELS,
    *(f"{name}{place}" for name, bounds in HISTOGRAMS.items() for place in range(len(bounds) + 1)),
    *(f"{name}_sum" for name in HISTOGRAMS),
)
PLACES = {name: place for place, name in enumerate(NAMES)}
FIRST_BUCKET = {name: PLACES[f"{name}0"] for name in HISTOGRAMS}
SUM = {name: PLACES[f"{name}_sum"] for name in HISTOGRAMS}
ROW_BYTES = 8 * len(NAMES)


class Meters:
    """The rows of all processes, one of which is written here. From any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._use(memoryview(bytearray(ROW_BYTES)), 0)

    def join(self, descriptor: int, rows: int, row: int) -> None:
        """From now on this process writes a row of memory that it shares with others (`shared_memory`)."""
        self._use(memoryview(mmap(descriptor, rows * ROW_BYTES)), row)

    def _use(self, memory: memoryview, row: int) -> None:
        self._numbers = memory.cast("q")
        self._own = self._numbers[row * len(NAMES) : (row + 1) * len(NAMES)]

    # ---- Writing

    def note_work(self, work: Work) -> None:
        own = self._own
        with self._lock:
            # Its fields have the first places.
            for place, number in enumerate(work):
                if number:
                    own[place] += number

    def note_batch(self, operations: int, took_s: float) -> None:
        """Of the writer: a transaction, with so many operations in it."""
        with self._lock:
            self._observe("batch_operations", operations)
            self._observe("batch_us", int(took_s * 1_000_000))

    def note_alone(self, took_s: float) -> None:
        """Of who kept all others from writing for so long."""
        with self._lock:
            self._observe("alone_us", int(took_s * 1_000_000))

    def note_refusal(self, error: TaskStoreError) -> None:
        """Of the verbs. What makes no sense is counted by the way in, which mostly does not ask them."""
        for reason in _reasons_of(error):
            self.add(reason)

    def add(self, name: str, number: int = 1) -> None:
        """To one of REASONS, or of LEVELS."""
        with self._lock:
            self._own[PLACES[name]] += number

    def set(self, level: str, number: int) -> None:
        self._own[PLACES[level]] = number

    def forget_levels(self, row: int) -> None:
        """Of a process that has died: what it had to do is gone, what it has done is not."""
        for level in LEVELS:
            self._numbers[row * len(NAMES) + PLACES[level]] = 0

    def _observe(self, name: str, number: int) -> None:
        self._own[FIRST_BUCKET[name] + bisect_left(HISTOGRAMS[name], number)] += 1
        self._own[SUM[name]] += number

    # ---- Reading

    def sum_of(self, name: str) -> int:
        """Over all processes."""
        return sum(self._numbers[PLACES[name] :: len(NAMES)])

    def buckets_of(self, histogram: str) -> Sequence[int]:
        """How many fell into each bucket, over all processes."""
        return [self.sum_of(f"{histogram}{place}") for place in range(len(HISTOGRAMS[histogram]) + 1)]


meters = Meters()


def shared_memory(rows: int) -> int:
    """A descriptor of memory for so many rows, all zero, for child processes. It is gone with the last of them."""
    if hasattr(os, "memfd_create"):
        # Not a file where there is another way: on a full disk a new page of it would kill whoever writes to it.
        descriptor = os.memfd_create("taskstore-meters")
    else:
        with TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.write(descriptor, bytes(rows * ROW_BYTES))
    return descriptor


def _reasons_of(error: TaskStoreError) -> Sequence[str]:
    if isinstance(error, CommitRefused):
        refusal = error.refusal
        reasons = {
            "gone": refusal.changes or refusal.deletes,
            "owned": refusal.owned,
            "depends": refusal.depends,
            "bugs": refusal.bugs,
        }
        return [reason for reason, named in reasons.items() if named]
    return [] if isinstance(error, InvalidInput | Forbidden) else [error.code]
