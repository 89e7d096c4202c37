"""Do the same with many items in portions, of which a wrong item fails alone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Done = TypeVar("Done")


def portions(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def by_halves(
    items: Sequence[Item],
    do: Callable[[Sequence[Item]], Done],
    alone: Callable[[Item, Exception], Done],
    is_theirs: Callable[[Exception], bool],
) -> Iterator[Done]:
    """Yield what `do` returns for all items, or for their halves when it fails, and `alone` for an item that fails.

    Raises the errors that are not the items' own.
    """
    left = [items] if items else []
    while left:
        some = left.pop()
        try:
            yield do(some)
        except Exception as error:
            if not is_theirs(error):
                raise
            half = len(some) // 2
            if half:
                left += [some[half:], some[:half]]
            else:
                yield alone(some[0], error)
