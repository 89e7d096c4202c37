"""Arrays as binary parameters of PostgreSQL, and notices about a standby. Nothing here needs psycopg."""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

Row = tuple[Any, ...]

# Where in PostgreSQL's source the warning comes from: its text depends on the server's language, and it has no code.
WAITS = "SyncRepWaitForLSN"


class Doubts:
    """Hears the notices of a connection, as psycopg hands them over."""

    def __init__(self) -> None:
        self.are_there = False

    def hear(self, notice: Any) -> None:
        self.are_there |= notice.source_function == WAITS


# The types' numbers (PostgreSQL's catalogue, pg_type.dat).
OIDS: Mapping[str, int] = {
    "bigint": 20,
    "smallint": 21,
    "integer": 23,
    "text": 25,
    "character varying": 1043,
    "bytea": 17,
    "jsonb": 3802,
}
FIXED = {"bigint": ("q", 8), "smallint": ("h", 2), "integer": ("i", 4)}


class PackedArray(bytes):
    """The bytes of an array parameter."""

    @property
    def length(self) -> int:
        return int.from_bytes(self[12:16], "big")


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


def literal(type_name: str, values: Iterable[Any]) -> str:
    """The array of these values as text. psycopg would take many times as long to write it."""
    return "{" + ",".join(["NULL" if value is None else _written(type_name, value) for value in values]) + "}"


def _written(type_name: str, value: Any) -> str:
    if type_name in FIXED:
        return f"{value:d}"
    if type_name == "bytea":
        return f'"\\\\x{value.hex()}"'
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def numbers_in(sent: bytes) -> Sequence[int]:
    """The elements of a bigint[] in PostgreSQL's binary form: each follows its length."""
    count = (len(sent) - 20) // 12
    return struct.unpack_from("!" + "4xq" * count, sent, 20) if count > 0 else ()


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
    "character varying": str.encode,
    "bytea": bytes,
    "jsonb": lambda text: b"\x01" + text.encode(),  # The version of the format comes before the text.
}


class Column(NamedTuple):
    """A column of a row type."""

    name: str
    type_name: str
    is_filled: bool  # Never NULL.


class RowPacker:
    """Packs rows of a table as the array that `unnest(%s::table[])` takes."""

    def __init__(
        self, row_type: int, columns: Sequence[Column], names: Sequence[str], varied: Container[str] = ()
    ) -> None:
        """`columns`: those of the row type, in its order; `names`: of the values in the rows that are packed.

        `varied`: columns whose values are hardly ever the same twice.
        Raises LookupError where the two differ, or a column has a type that is not known here.
        """
        if {column.name for column in columns} != {*names}:
            raise LookupError("the table has other columns")
        self._row_type = row_type
        self._row_of = _row_encoder([(names.index(column.name), column) for column in columns], varied)

    def packed(self, rows: Sequence[Row]) -> PackedArray:
        pieces = [struct.pack("!iiIii", 1, 0, self._row_type, len(rows), 1)]
        for encoded in map(self._row_of, rows):
            pieces += (len(encoded).to_bytes(4, "big"), encoded)
        return PackedArray(b"".join(pieces))


def _row_encoder(columns: Sequence[tuple[int, Column]], varied: Container[str]) -> Callable[[Row], bytes]:
    """Make the function that encodes a row: one expression, written as it would be by hand for these columns.

    To call a function for each value would take three times as long, and rows are most of what a batch sends.
    """
    values: dict[str, Any] = {"join": b"".join}
    parts = [repr(len(columns).to_bytes(4, "big"))]
    for is_fixed, run in groupby(columns, lambda each: each[1].is_filled and each[1].type_name in FIXED):
        if is_fixed:
            # Each number follows its type and its length, which are always the same.
            numbers = [(place, column.type_name) for place, column in run]
            pack = f"pack{len(parts)}"
            values[pack] = struct.Struct("!" + "".join([f"Q{FIXED[name][0]}" for _, name in numbers])).pack
            heads = [f"{OIDS[name] << 32 | FIXED[name][1]}, row[{place}]" for place, name in numbers]
            parts.append(f"{pack}({', '.join(heads)})")
            continue
        for place, column in run:
            known, nothing, value = f"known{len(parts)}", f"nothing{len(parts)}", f"row[{place}]"
            values[known] = encoded = Encoded(column.type_name)
            if column.type_name == "jsonb" and column.is_filled:
                values[nothing] = encoded.of({})
                parts.append(f"{known}.of({value}) if {value} else {nothing}")
            elif column.type_name in FIXED:
                values[nothing] = encoded.of(None)
                parts.append(f"{nothing} if {value} is None else {known}.of({value})")
            elif column.type_name in NOT_LOOKED_UP or column.name in varied:
                parts.append(f"{known}.of({value})")
            else:
                parts.append(f"{known}[{value}]")
    function: Callable[[Row], bytes] = eval(f"lambda row: join(({', '.join(parts)},))", values)  # noqa: S307 - Ours.
    return function


NOT_LOOKED_UP = ("bytea", "jsonb")  # Each is another one mostly, and may be long or no key of a dict.
MOST_TEXTS, LONGEST_TEXT = 10_000, 300
TYPE_AND_LENGTH = struct.Struct("!Ii").pack  # Before each value of a row.


def _labels(labels: Mapping[str, str]) -> bytes:
    return b"\x01" + msgspec.json.encode(dict(labels))


class Encoded(dict[Any, bytes]):
    """Values of a column with their type and length: names, errors, endings, nothing. Few of them, many times."""

    def __init__(self, type_name: str) -> None:
        self._oid = OIDS[type_name]
        self._to_bytes = _labels if type_name == "jsonb" else ENCODERS.get(type_name) or _fixed_encoder(type_name)

    def of(self, value: Any) -> bytes:
        if value is None:
            return TYPE_AND_LENGTH(self._oid, -1)
        encoded = self._to_bytes(value)
        return TYPE_AND_LENGTH(self._oid, len(encoded)) + encoded

    def __missing__(self, value: Any) -> bytes:
        encoded = self.of(value)
        if value is None or len(value) <= LONGEST_TEXT:
            if len(self) >= MOST_TEXTS:
                self.clear()
            self[value] = encoded
        return encoded
