"""How a group's tasks divide among the states, as a bar. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..counts import Counts
from ..operations import State

WHOLE = 1_000  # The length of a bar.
ORDER = (State.READY, State.CLAIMED, State.EXPIRED, State.SCHEDULED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A piece of the bar, in thousandths of its length."""

    state: State
    start: int
    length: int


def part(number: int, total: int) -> int:
    """The length of the bar that stands for `number` of `total`."""
    return WHOLE * number // max(total, 1)


def shares_of(counts: Counts) -> Sequence[Share]:
    """The pieces, in the order of a task's life. Failed tasks are counted beside the others, so they are none."""
    numbers = [getattr(counts, state) for state in ORDER]
    ends = [part(sum(numbers[: place + 1]), sum(numbers)) for place in range(len(numbers))]
    starts = [0, *ends]
    return [
        Share(state=state, start=start, length=end - start)
        for state, start, end in zip(ORDER, starts, ends, strict=False)
    ]
