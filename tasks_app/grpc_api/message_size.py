"""Count the contents of a large message from its bytes, before it is parsed.

Parsing three million tasks takes more than a gigabyte, and blocks all other calls.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from taskstore.errors import LimitExceeded
from taskstore.masstasker.masstasker_pb2 import BulkSetRequest, Task, TaskRef, UpdateRequest
from taskstore.types.scalars import Limits
from taskstore.types.tasks import STORES_LABELS

LIGHT_BYTES = 16 * 2**10  # Fewer bytes are parsed within milliseconds.
PIECE_BYTES = 2**20
SELECTED = 1_000  # Labels of a selector.

# Wire types.
VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5
LOW_BYTES = bytes(range(128))  # Each is the last byte of a number.

Field = tuple[int, int, int, int]  # Number, wire type, and the start and end of its content.


def pieces_of(kind: type, body: bytes, limits: Limits) -> Iterator[bytes]:
    """Yield the message in pieces, each of which is a message by itself.

    Raises LimitExceeded that names the exceeded limit, DecodeError for invalid bytes.
    """
    count = Counts(kind, limits)
    begin = 0
    for field in _fields(body, 0, len(body)):
        count.add(body, field)
        if field[3] - begin >= PIECE_BYTES:
            yield body[begin : field[3]]
            begin = field[3]
    yield body[begin:]


class Counts:
    """The numbers found so far in one message."""

    def __init__(self, kind: type, limits: Limits) -> None:
        self._kind, self._limits = kind, limits
        self._found: dict[str, int] = {}
        self._fields = 0

    def add(self, body: bytes, field: Field) -> None:
        number = field[0]
        self._count("request", 1, self._limits.values)
        if self._kind is UpdateRequest and number == UpdateRequest.CREATED_FIELD_NUMBER:
            place = self._count("created", 1, self._limits.changes)
            self._look_into_task(f"created[{place}]", body, field)
        elif self._kind is UpdateRequest and number == UpdateRequest.DELETED_FIELD_NUMBER:
            self._look_into_ref("deleted", body, field)
        elif self._kind is UpdateRequest and number == UpdateRequest.PREDICATES_FIELD_NUMBER:
            self._count("predicates", self._ids_in(body, field), self._limits.changes)
        elif self._kind is BulkSetRequest and number == BulkSetRequest.REF_FIELD_NUMBER:
            self._look_into_ref("ref", body, field)
        elif self._kind is BulkSetRequest:
            self._look_into_task("prototype", body, field)

    def _ids_in(self, body: bytes, field: Field) -> int:
        _, kind, begin, end = field
        if kind != BYTES:
            return 1
        # Counts bytes instead of parsing: no id has more than ten.
        packed = body[begin : min(end, begin + 10 * self._limits.changes + 10)]
        return len(packed) - len(packed.translate(None, LOW_BYTES))

    def _look_into_task(self, path: str, body: bytes, field: Field) -> None:
        self._count_within(
            f"{path}.labels", body, field, Task.LABELS_FIELD_NUMBER, self._limits.labels + len(STORES_LABELS)
        )

    def _look_into_ref(self, name: str, body: bytes, field: Field) -> None:
        place = self._count(name, 1, self._limits.changes)
        _, kind, begin, end = field
        if kind == BYTES:
            for inner in _fields(body, begin, end):
                if inner[0] == TaskRef.SELECTOR_FIELD_NUMBER:
                    self._count_within(f"{name}[{place}].selector.labels", body, inner, 1, SELECTED)

    def _count_within(self, path: str, body: bytes, field: Field, number: int, most: int) -> None:
        _, kind, begin, end = field
        if kind != BYTES:
            return
        found = 0
        for inner in _fields(body, begin, end):
            self._count("request", 1, self._limits.values)
            found += inner[0] == number
            if found > most:
                raise LimitExceeded({path: [f"must have at most {most} items"]})

    def _count(self, name: str, more: int, most: int) -> int:
        """Add to a count, and return its value before."""
        before = self._found.get(name, 0)
        self._found[name] = before + more
        if before + more > most:
            what = "fields" if name == "request" else "items"
            raise LimitExceeded({name: [f"must have at most {most} {what}"]})
        return before


def _fields(body: bytes, begin: int, end: int) -> Iterator[Field]:
    """Yield the fields of a message. Raises DecodeError for invalid bytes."""
    while begin < end:
        key, begin = _number(body, begin, end)
        number, kind = key >> 3, key & 7
        after = begin
        if kind == VARINT:
            _, after = _number(body, begin, end)
        elif kind == BYTES:
            size, begin = _number(body, begin, end)
            after = begin + size
        elif kind in (EIGHT_BYTES, FOUR_BYTES):
            after = begin + (8 if kind == EIGHT_BYTES else 4)
        else:
            raise DecodeError("a group: no message has one")
        if after > end or not number:
            raise DecodeError("it ends within a field")
        yield number, kind, begin, after
        begin = after


def _number(body: bytes, begin: int, end: int) -> tuple[int, int]:
    """Return the number, and the place after it."""
    number = shift = 0
    for place in range(begin, min(begin + 10, end)):
        byte = body[place]
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place + 1
        shift += 7
    raise DecodeError("a number without an end")
