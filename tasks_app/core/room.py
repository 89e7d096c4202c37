"""The size of answers, which is decided before anything is claimed or committed: contract.md section 8."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from itertools import accumulate

import msgspec

from taskstore.types.tasks import answer_of, json_size

from .operations import Apart, Duplicate, TaskRecord

LARGE_BYTES = 2**20  # Smaller answers need no place.
ENCODER = msgspec.json.Encoder()


class Place:
    """What an answer takes of the room until it is sent, or forgotten."""

    def __init__(self, room: Room, size: int) -> None:
        self._room, self._size = room, size

    def leave(self) -> None:
        """Give it back. Calling it again has no effect."""
        size, self._size = self._size, 0
        self._room.add(-size)

    __del__ = leave


class Room:
    """How many bytes the large answers of this process have together."""

    def __init__(self) -> None:
        self._taken = 0
        self._lock = threading.RLock()  # A collection may end a place at any moment, also within these lines.

    def add(self, size: int) -> int:
        with self._lock:
            self._taken += size
            return self._taken

    def take(self, size: int, most: int) -> Place | None:
        """Take a place of so many bytes; None where all together would have more than `most`."""
        if self.add(size) > most and self._taken > size > 0:  # The first one always finds a place.
            self.add(-size)
            return None
        return Place(self, size)


room = Room()


class Told(list[TaskRecord]):
    """The tasks of an answer that is large, ends early because of its size, or is repeated without those in `gone`."""

    def __init__(
        self, tasks: Iterable[TaskRecord], place: Place | None, *, is_truncated: bool = False, gone: Sequence[int] = ()
    ) -> None:
        super().__init__(tasks)
        self.place = place
        self.is_truncated = is_truncated
        self.gone = gone

    def __bool__(self) -> bool:
        """Whether it tells anything: a claim whose tasks have all gone since is not one that found nothing."""
        return bool(len(self) or self.gone)


def size_of_task(task: TaskRecord) -> int:
    """How many bytes a task takes in JSON."""
    data = task.data.size if isinstance(task.data, Apart) else json_size(task.data)
    return len(ENCODER.encode(answer_of(task, with_data=False))) + data


def most_of(tasks: Iterable[TaskRecord]) -> int:
    """At most so many bytes take the tasks in JSON: found out quickly."""
    return sum(
        [
            1_000
            + (task.data.size if isinstance(task.data, Apart) else 6 * len(task.data))
            + 6 * (len(task.error) + len(task.group) + len(task.unique) + len(task.data_type))
            + 4_000 * len(task.labels)
            for task in tasks
        ]
    )


def answer_size(tasks: Sequence[TaskRecord]) -> int:
    """How many bytes an answer of the tasks takes, roughly: to measure all of its text takes as long as to write it.

    A duplicate's data counts once.
    """
    size, seen = 0, set[int]()
    for task in tasks:
        if isinstance(task, Duplicate):
            if task.id in seen:
                continue
            seen.add(task.id)
        size += 300 + len(task.error) + 100 * len(task.labels)
        size += task.data.size if isinstance(task.data, Apart) else len(task.data)
    return size


def fitting(tasks: Sequence[TaskRecord], most: int) -> int:
    """How many of the tasks an answer of so many bytes has room for: at least one, if there is one."""
    if most_of(tasks) <= most:
        return len(tasks)
    return max(1, sum(total <= most for total in accumulate(map(size_of_task, tasks))))
