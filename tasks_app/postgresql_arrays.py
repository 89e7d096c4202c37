"""Arrays as PostgreSQL's binary protocol has them: a column of a batch in one parameter.

psycopg's own lists are packed value by value in Python, as text; this was half of a batch's time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

# The types' numbers, of an element and of an array of them (PostgreSQL's catalogue, pg_type.dat).
OIDS: Mapping[str, tuple[int, int]] = {
    "bigint": (20, 1016),
    "smallint": (21, 1005),
    "integer": (23, 1007),
    "text": (25, 1009),
    "bytea": (17, 1001),
    "jsonb": (3802, 3807),
}
FIXED = {"bigint": ("q", 8), "smallint": ("h", 2), "integer": ("i", 4)}


class PackedArray(bytes):
    """The bytes of an array parameter. The type is told by the subclass."""


def _dumper(array_oid: int) -> type[Dumper]:
    class PackedArrayDumper(Dumper):
        format = Format.BINARY
        oid = array_oid

        def dump(self, packed: PackedArray) -> bytes:
            return packed

    return PackedArrayDumper


CLASSES = {name: type(f"Packed_{name}", (PackedArray,), {}) for name in OIDS}


def register(adapters: AdaptersMap) -> None:
    """Let a connection take packed arrays."""
    for name, cls in CLASSES.items():
        adapters.register_dumper(cls, _dumper(OIDS[name][1]))


def packed(type_name: str, values: Sequence[Any]) -> PackedArray:
    """The array of these values, None among them for NULL."""
    element_oid = OIDS[type_name][0]
    has_null = None in values
    header = (
        struct.pack("!iiIii", 1, has_null, element_oid, len(values), 1)
        if values
        else struct.pack("!iiI", 0, 0, element_oid)
    )
    body = _fixed(type_name, values) if type_name in FIXED and not has_null else _variable(type_name, values)
    made: PackedArray = CLASSES[type_name](header + body)
    return made


def _fixed(type_name: str, values: Sequence[Any]) -> bytes:
    code, size = FIXED[type_name]
    return struct.pack("!" + f"i{code}" * len(values), *chain.from_iterable((size, value) for value in values))


def _variable(type_name: str, values: Sequence[Any]) -> bytes:
    encode = ENCODERS.get(type_name) or _fixed_encoder(type_name)
    return b"".join(_element(None if value is None else encode(value)) for value in values)


def _element(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "big") + value


def _fixed_encoder(type_name: str) -> Callable[[Any], bytes]:
    return struct.Struct("!" + FIXED[type_name][0]).pack


ENCODERS: Mapping[str, Callable[[Any], bytes]] = {
    "text": str.encode,
    "bytea": bytes,
    "jsonb": lambda text: b"\x01" + text.encode(),  # Its version, then its text.
}
