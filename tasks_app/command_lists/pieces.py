"""Many tasks are changed by pieces: modest commits, each whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..errors import CommitRefused

PIECE = 100  # Tasks a commit.
WITH_OUTPUTS = 20  # The same of tasks that may be large.

Change = Callable[[Sequence[int]], int]


def by_pieces(pages: Iterable[Sequence[int]], change: Change, size: int = PIECE) -> int:
    """Call `change` with some ids at a time. Returns how many it changed in all.

    Where a commit is refused because a task has gone meanwhile, the others of its piece are changed one by one.
    """
    return sum(_changed(page[start : start + size], change) for page in pages for start in range(0, len(page), size))


def _changed(ids: Sequence[int], change: Change) -> int:
    try:
        return change(ids)
    except CommitRefused:
        return 0 if len(ids) == 1 else sum(_changed([task_id], change) for task_id in ids)
