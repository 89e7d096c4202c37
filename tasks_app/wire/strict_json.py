"""JSON as the contract wants it, and nothing else: pure.

The standard library's reader, because it lets us see every pair of an object: msgspec and
orjson take the last of duplicate keys without a word.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from taskstore.errors import InvalidInput

MOST_DIGITS = 20  # Of an integer of 64 bits, with its sign. More would only cost time to convert.
MOST_CHARACTERS = 1_000  # Of a number with a fraction or an exponent.
LONGEST_NAME_SHOWN = 100


def read(body: bytes) -> Any:
    """The value that the body holds. Members that are null count as absent and are left out.

    Raises InvalidInput that names `body` when it is empty, no UTF-8, no JSON, nested too
    deep, or holds a duplicate key or NaN.
    """
    if not body.strip():
        raise wrong("must not be empty: send a JSON object")
    try:
        return READER.decode(body.decode())
    except UnicodeDecodeError as problem:
        raise wrong(f"must be valid UTF-8, which byte {problem.start} is not") from None
    except json.JSONDecodeError as problem:
        raise wrong(f"must be valid JSON: {problem}") from None
    except RecursionError:
        raise wrong("must not be nested this deeply") from None


def wrong(text: str) -> InvalidInput:
    return InvalidInput({"body": [text]})


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise wrong(f'must not repeat a key: "{twice[:LONGEST_NAME_SHOWN]}" occurs twice in an object')
    if None in members.values():
        return {name: value for name, value in members.items() if value is not None}
    return members


def _integer(digits: str) -> int:
    # Cut, what is too long is still too large: the decoder refuses it and names the field.
    return int(digits[: MOST_DIGITS + 1])


def _fraction(digits: str) -> float:
    if len(digits) > MOST_CHARACTERS:
        raise wrong(f"must not contain a number of more than {MOST_CHARACTERS} characters")
    return float(digits)


def _constant(name: str) -> NoReturn:
    raise wrong(f"must be valid JSON, which has no {name}")


READER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_fraction, parse_constant=_constant
)
