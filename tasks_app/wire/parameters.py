"""JSON as it was written, for the parameters of functions: null and integers beyond 64 bits are theirs to have."""

from __future__ import annotations

import json
from typing import Any

from taskstore.errors import InvalidInput

MOST_DIGITS = 4_300  # What Python converts without being told to; the time rises with the square.


class TooLong(int):
    """Stands for an integer of more digits."""


def written(body: bytes) -> Any:
    """The value of a body that is known to be JSON. Raises InvalidInput that names integers that are too long."""
    is_too_long = False

    def integer(digits: str) -> int:
        nonlocal is_too_long
        if len(digits) <= MOST_DIGITS:
            return int(digits)
        is_too_long = True
        return TooLong()

    tree = json.loads(body, parse_int=integer)
    if is_too_long:
        raise InvalidInput({_path_of_too_long(tree): [f"must be an integer of at most {MOST_DIGITS} digits"]})
    return tree


def _path_of_too_long(tree: Any) -> str:
    """Of the first one that is found."""
    there: list[tuple[str, Any]] = [("", tree)]
    while there:
        path, value = there.pop()
        if isinstance(value, TooLong):
            return path
        if isinstance(value, dict):
            there += [(f"{path}.{name}" if path else name, part) for name, part in value.items()]
        elif isinstance(value, list):
            there += [(f"{path}[{place}]", part) for place, part in enumerate(value)]
    return "body"
