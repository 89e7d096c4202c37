"""How much a body of JSON holds, told before anything is built of it: pure.

To build a value of each of three million objects takes seconds, and the interpreter does nothing else meanwhile.
"""

from __future__ import annotations

import re

from taskstore.errors import LimitExceeded

LIGHT_BYTES = 16 * 2**10  # So few bytes are decoded within a few milliseconds, whatever they hold.
HEAVY_BYTES = 2 * 2**20  # And more than these only to count them takes too long for an event loop.
LIGHT_VALUES = 5_000
AT_ONCE = 1_000

# Whatever stands before a value of an object or a list, texts as a whole; nothing that was read is read again.
_TEXT = rb'"(?:[^"\\]++|(?:\\.)++)*+"'
_VALUE = rb"(?:[^\",\[{]++|%b)*+[,\[{]" % _TEXT
_ONE = re.compile(_VALUE, re.DOTALL)
_MANY = re.compile(rb"(?:%b){%d}+" % (_VALUE, AT_ONCE), re.DOTALL)


def is_light(body: bytes) -> bool:
    """Whether the body is decoded fast enough for an event loop."""
    if len(body) <= LIGHT_BYTES:
        return True
    if len(body) > HEAVY_BYTES:
        return False
    # In texts these stand for nothing; then there is less to do than it seems.
    return sum(map(body.count, (b",", b"[", b"{", b"\\"))) <= LIGHT_VALUES


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
