"""Parse messages, and detect the bytes of the older definition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.unknown_fields import UnknownFieldSet
from google.protobuf.wrappers_pb2 import BytesValue

from taskstore.errors import InvalidInput
from taskstore.masstasker import masstasker_pb2 as pb
from taskstore.masstasker.masstasker_pb2 import TaskRef, UpdateRequest, UpdateResponse
from taskstore.types.scalars import INT64_MAX, LATEST_MS
from taskstore.types.tasks import NewTask

DELETED = UpdateRequest.DELETED_FIELD_NUMBER
# Wire types.
VARINT, BYTES = 0, 2
KINDS = {TaskRef.ID_FIELD_NUMBER: VARINT, TaskRef.SELECTOR_FIELD_NUMBER: BYTES, TaskRef.GROUP_FIELD_NUMBER: BYTES}

WRONG_REF = "must be a TaskRef with exactly one of id, selector and group"


def refuse_plain_ids(pieces: Iterable[bytes]) -> None:
    """Raise InvalidInput unless each record of `deleted` in an UpdateRequest is a TaskRef with one field.

    `pieces` are those of the request, each a message by itself. A parsed message would not do: of several
    fields in a TaskRef it keeps only the last.
    """
    records = [field for piece in pieces for field in _fields_of(piece) if field.field_number == DELETED]
    wrong = {
        f"deleted[{place}]": [WRONG_REF]
        for place, record in enumerate(records)
        if record.wire_type != BYTES or not _is_ref(record.data)
    }
    if wrong:
        raise InvalidInput(wrong)


def plain_ids(request: UpdateRequest) -> list[int]:
    """Return the ids that a client with the older definition may have meant by `deleted`; none if impossible."""
    if len(request.deleted) != 1:
        return []
    try:
        # Reads a record of bytes as one of numbers.
        numbers = BytesValue(value=request.deleted[0].SerializeToString()).SerializeToString()
        ids = list(UpdateResponse.FromString(numbers).created_ids)
    except DecodeError:
        return []
    is_sensible = len(set(ids)) == len(ids) and all(0 < task_id <= INT64_MAX for task_id in ids)
    return ids if is_sensible else []


def _is_ref(record: bytes) -> bool:
    try:
        fields = _fields_of(record)
    except DecodeError:
        return False
    return len(fields) == 1 and KINDS.get(fields[0].field_number) == fields[0].wire_type


def _fields_of(message: bytes) -> list[Any]:
    """Return the fields on the wire: an empty message type reports all of them as unknown."""
    fields: Any = UnknownFieldSet(Empty.FromString(message))  # Its type lacks iteration.
    return list(fields)


IDS = 2**64  # The range on the wire; the store gives out ids below 2^63.
NANOS_IN_MS = 1_000_000
# The limits of protobuf's own definitions: the years 1 to 9999, and ten thousand years.
FIRST_S, LAST_S = -62_135_596_800, 253_402_300_799
LONGEST_S = 315_576_000_000

# The names of the store's fields on the wire.
NAMES = {
    "adds": "created",
    "deletes": "deleted",
    "depends": "predicates",
    "timespec": "not_before",
    "duration": "own_for",
    "data": "data.value",
    "data_type": "data.type_url",
}


def id_in(number: int) -> int:
    """Return the id as a signed number. Ids beyond those of the store become negative and match no task."""
    return number if number <= INT64_MAX else number - IDS


def new_tasks_in(tasks: Sequence[pb.Task]) -> tuple[NewTask, ...]:
    """Convert tasks to adds. Raises InvalidInput about invalid times."""
    return tuple(new_task_in(task, f"created[{place}]") for place, task in enumerate(tasks))


def new_task_in(task: pb.Task, path: str) -> NewTask:
    url = task.data.type_url
    # One slash stands for an empty Any, to distinguish it from no Any. A type URL of slashes alone gets one more.
    is_empty_any = task.HasField("data") and not url and not task.data.value
    at_ms = moment_in(task.not_before, f"{path}.not_before") if task.HasField("not_before") else 0
    return NewTask(
        id=id_in(task.id),
        group=task.group,
        data=task.data.value,
        data_type=f"{url}/" if is_empty_any or (url and not url.strip("/")) else url,
        timespec_ms=max(at_ms, 0),
        # Clients in Go send the year 1 for no time, and compare it with what comes back.
        at_ms=at_ms if at_ms < 0 else None,
        error=task.error,
        labels=dict(task.labels),
    )


def type_url_of(kept: str) -> str:
    """Return the type URL of a stored data type, as `new_task_in` stores it."""
    return kept if kept.strip("/") else kept.removesuffix("/")


def time_in(time: Timestamp, path: str) -> int:
    """As `moment_in`, at least 1."""
    return max(moment_in(time, path), 1)


def moment_in(time: Timestamp, path: str) -> int:
    """Return milliseconds since the Epoch, rounded up: no task becomes available before its time.

    The Epoch itself is 1, as 0 stands for now. Raises InvalidInput when a Timestamp can't hold the time.
    """
    if not (FIRST_S <= time.seconds <= LAST_S and 0 <= time.nanos < 1_000 * NANOS_IN_MS):
        raise InvalidInput({path: ["must be a time in the years 1 to 9999, with 0 to 999999999 nanos"]})
    ms = time.seconds * 1_000 - -time.nanos // NANOS_IN_MS
    return min(ms or 1, LATEST_MS)


def duration_in(duration: Duration, path: str) -> int:
    """Return milliseconds, rounded up. Raises InvalidInput when a Duration can't hold the value."""
    seconds, nanos = duration.seconds, duration.nanos
    if abs(seconds) > LONGEST_S or abs(nanos) >= 1_000 * NANOS_IN_MS or seconds * nanos < 0:
        raise InvalidInput({path: ["must be at most 10000 years, with less than a second of nanos of the same sign"]})
    return seconds * 1_000 - -nanos // NANOS_IN_MS


def path_on_the_wire(path: str) -> str:
    """Return a path on the wire: `adds[0].timespec` becomes `created[0].not_before`, an empty path `request`."""
    item, dot, field = path.partition(".")
    name, bracket, place = item.partition("[")
    if name == "updates":  # Only BulkSet's prototype, which is one change for all matching tasks.
        return f"prototype.{field}"
    return NAMES.get(name, name) + bracket + place + dot + NAMES.get(field, field) if path else "request"
