"""Many tasks are changed by pieces: modest commits, each whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import CommitRefused

PIECE = 100  # Tasks a commit.


def by_pieces(ids: Sequence[int], change: Callable[[Sequence[int]], int]) -> int:
    """Call `change` with some ids at a time. Returns how many it changed in all.

    Where a commit is refused because a task has gone meanwhile, the others of its piece are changed one by one.
    """
    return sum(_changed(ids[start : start + PIECE], change) for start in range(0, len(ids), PIECE))


def _changed(ids: Sequence[int], change: Callable[[Sequence[int]], int]) -> int:
    try:
        return change(ids)
    except CommitRefused:
        return 0 if len(ids) == 1 else sum(_changed([task_id], change) for task_id in ids)
