"""How many tasks of an operation are changed at once, and how long it rests, so that workers hardly notice it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from ..models import Task
from ..writer import running

FIRST, LEAST, MOST = 50, 5, 1_000  # Tasks of a chunk.
BESIDE_WORKERS_S, ALONE_S = 0.008, 0.1  # How long a chunk's commit should keep the writer.
REST = 1.5  # Times as long as a chunk takes have workers the store for themselves after it.


class Pace:
    """Learns from each chunk. `is_considerate`: workers of this process, if there are any, come first."""

    def __init__(self, *, is_considerate: bool) -> None:
        self.size = min(FIRST, MOST)
        self._is_considerate = is_considerate
        self._began_s = monotonic()
        self._committed_s = 0.0
        self._seen = _done_by_writer()
        self._own = 0

    def begin(self) -> None:
        """A chunk begins."""
        self._began_s, self._committed_s, self._own = monotonic(), 0.0, 0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Around a commit of the chunk."""
        began_s = monotonic()
        yield
        self._committed_s += monotonic() - began_s
        self._own += 1

    def rest_s(self) -> float:
        """After a chunk: how long to leave the store to the workers. The size of the next one follows from this one."""
        seen = _done_by_writer()
        others_work = self._is_considerate and seen - self._seen > self._own
        self._seen = seen
        if self._committed_s:
            aim_s = BESIDE_WORKERS_S if others_work else ALONE_S
            # At most twice as many: one commit may have been quick by chance.
            fitting = int(self.size * min(2.0, aim_s / self._committed_s))
            self.size = min(MOST, max(LEAST, fitting))
        return REST * (monotonic() - self._began_s) if others_work else 0.0


def _done_by_writer() -> int:
    """How much the writer of this process has had to do."""
    writer = running(Task.objects.writing_alias)
    return writer.begun if writer else 0
