"""JSON as the contract wants it, and nothing else: how much a body holds, what it says, and the value asked for.

The standard library's reader, because it lets us see every pair of an object: msgspec and
orjson take the last of duplicate keys without a word.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec import inspect

from taskstore.errors import InvalidInput, LimitExceeded
from taskstore.types import sentences
from taskstore.types.checks import Walk
from taskstore.types.requests import Asked

from ..managers import limits
from .requests import every_problem

NOTHING: Mapping[str, Any] = {}
AskedT = TypeVar("AskedT", bound=Asked)

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
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
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


def value_of(tree: Any, asked: type[AskedT], given: Mapping[str, Any] = NOTHING) -> AskedT:
    """The tree as a value of this type. `given`: the fields that came with the URL, which the tree may not have.

    Raises InvalidInput that names every wrong field.
    """
    members = {**given, **tree} if given and isinstance(tree, dict) else tree
    value: AskedT | None = None
    if not given or (isinstance(tree, dict) and given.keys().isdisjoint(tree)):
        with suppress(msgspec.ValidationError, UnicodeEncodeError):  # The latter for lone surrogates in names.
            value = msgspec.convert(members, asked)
    if value is None or any(value.problems(limits())):
        raise InvalidInput(wrong_fields(members, asked, given, tree))
    return value


def wrong_fields(members: Any, asked: type[Asked], given: Mapping[str, Any], tree: Any) -> dict[str, list[str]]:
    """Return what is wrong, by the path of each wrong field: `{"limit": ["must be an integer, not a string"]}`."""
    walk = Walk(limits().changes, given=given)
    harmless = walk.along(members, inspect.type_info(asked))
    fields = dict(walk.problems)
    if given and isinstance(tree, dict):
        known = [name for name in asked.__struct_fields__ if name not in given]
        fields |= {name: sentences.unknown("field", known) for name in given if name in tree}
    for path, text in every_problem(msgspec.convert(harmless, asked)):
        around = (path[: end.start()] for end in re.finditer(r"[.[]|$", path))
        if fields.keys().isdisjoint(around):  # What stands for a wrong value is not what is wrong.
            fields[path] = text
    return {path: [text] for path, text in fields.items()}


def decode(body: bytes, asked: type[AskedT], given: Mapping[str, Any] = NOTHING) -> AskedT:
    """The value of this type that a body holds. Raises InvalidInput that names every wrong field."""
    try:
        value = value_of(read(body), asked, given)
    except RecursionError:
        raise wrong("must not be nested this deeply") from None
    return value if asked.as_written is Asked.as_written else value.as_written(written(body))


# ---- Null and integers beyond 64 bits, which the arguments of functions may hold

MOST_DIGITS_WRITTEN = 4_300  # What Python converts without being told to; the time rises with the square.


class TooLong(int):
    """Stands for an integer of more digits."""


def written(body: bytes) -> Any:
    """The value of a body that is known to be JSON. Raises InvalidInput that names integers that are too long."""
    is_too_long = False

    def integer(digits: str) -> int:
        nonlocal is_too_long
        if len(digits) <= MOST_DIGITS_WRITTEN:
            return int(digits)
        is_too_long = True
        return TooLong()

    tree = json.loads(body, parse_int=integer)
    if is_too_long:
        raise InvalidInput({_path_of_too_long(tree): [f"must be an integer of at most {MOST_DIGITS_WRITTEN} digits"]})
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


# ---- How much a body holds, told before anything is built of it: to build a value of each of three million objects
# takes seconds, and the interpreter does nothing else meanwhile.

LIGHT_BYTES = 16 * 2**10  # So few bytes are decoded within a few milliseconds, whatever they hold.
HEAVY_BYTES = 2 * 2**20  # And more than these only to count them takes too long for an event loop.
LIGHT_VALUES = 600  # More is decoded in a thread: an event loop would stand still for more than a millisecond.
HEAVY_VALUES = 6_500  # And more than these in the helper process. For fewer it would take longer to send them.
ESCAPES = 20  # So many take as long as a value.
AT_ONCE = 1_000

# Whatever stands before a value of an object or a list, texts as a whole; nothing that was read is read again.
_TEXT = rb'"(?:[^"\\]++|(?:\\.)++)*+"'
_VALUE = rb"(?:[^\",\[{]++|%b)*+[,\[{]" % _TEXT
_ONE = re.compile(_VALUE, re.DOTALL)
_MANY = re.compile(rb"(?:%b){%d}+" % (_VALUE, AT_ONCE), re.DOTALL)


def is_light(body: bytes) -> bool:
    """Whether the body is decoded fast enough for an event loop."""
    return len(body) <= LIGHT_BYTES or not _has_more(body, LIGHT_VALUES)


def is_heavy(body: bytes) -> bool:
    """Whether the body takes so long that it is decoded in another process."""
    return _has_more(body, HEAVY_VALUES)


def _has_more(body: bytes, most: int) -> bool:
    if len(body) > HEAVY_BYTES:
        return True
    # In texts these stand for nothing; then there is less to do than it seems.
    values = sum(map(body.count, (b",", b"[", b"{")))
    return values > most or values + body.count(b"\\") // ESCAPES > most


def refuse_many(body: bytes, most: int) -> None:
    """Raise LimitExceeded when objects and lists hold more than `most` values together. Stops there."""
    place = 0
    many, few = divmod(most, AT_ONCE)
    for pattern, times in ((_MANY, many), (_ONE, few + 1)):
        for _ in range(times):
            found = pattern.match(body, place)
            if found is None:
                return
            place = found.end()
    raise LimitExceeded({"body": [f"must have at most {most} values in all lists and objects together"]})
