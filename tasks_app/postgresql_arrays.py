"""Arrays as PostgreSQL's binary protocol has them: a column of a batch in one parameter.

psycopg's own lists are packed value by value in Python, as text; this was half of a batch's time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# The types' numbers (PostgreSQL's catalogue, pg_type.dat).
OIDS: Mapping[str, int] = {"bigint": 20, "smallint": 21, "integer": 23, "text": 25, "bytea": 17, "jsonb": 3802}
FIXED = {"bigint": ("q", 8), "smallint": ("h", 2), "integer": ("i", 4)}


class PackedArray(bytes):
    """The bytes of an array parameter."""


def packed(type_name: str, values: Sequence[Any]) -> PackedArray:
    """The array of these values, None among them for NULL."""
    element_oid = OIDS[type_name]
    has_null = None in values
    header = (
        struct.pack("!iiIii", 1, has_null, element_oid, len(values), 1)
        if values
        else struct.pack("!iiI", 0, 0, element_oid)
    )
    body = _fixed(type_name, values) if type_name in FIXED and not has_null else _variable(type_name, values)
    return PackedArray(header + body)


def _fixed(type_name: str, values: Sequence[Any]) -> bytes:
    code, size = FIXED[type_name]
    elements = [size] * (2 * len(values))
    elements[1::2] = values
    return struct.pack("!" + f"i{code}" * len(values), *elements)


def _variable(type_name: str, values: Sequence[Any]) -> bytes:
    encode = ENCODERS.get(type_name) or _fixed_encoder(type_name)
    if type_name == "bytea":  # Each is another one mostly, and may be long.
        return b"".join([_element(value, encode) for value in values])
    # Names, errors, endings: a column of a batch holds few of them, many times.
    elements = {value: _element(value, encode) for value in set(values)}
    return b"".join(map(elements.__getitem__, values))


def _element(value: Any, encode: Callable[[Any], bytes]) -> bytes:
    if value is None:
        return b"\xff\xff\xff\xff"
    encoded = encode(value)
    return len(encoded).to_bytes(4, "big") + encoded


def _fixed_encoder(type_name: str) -> Callable[[Any], bytes]:
    return struct.Struct("!" + FIXED[type_name][0]).pack


ENCODERS: Mapping[str, Callable[[Any], bytes]] = {
    "text": str.encode,
    "bytea": bytes,
    "jsonb": lambda text: b"\x01" + text.encode(),  # Its version, then its text.
}
