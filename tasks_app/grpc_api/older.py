"""Bytes in the shape that MassTasker's README still shows, in which `deleted` holds plain ids.

Read as TaskRefs such bytes are something else, at worst a group (contract.md section 6 takes the published definition):
one record holds all ids, one after another.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from google.protobuf.wrappers_pb2 import BytesValue

from ..errors import InvalidInput
from ..masstasker.masstasker_pb2 import TaskRef, UpdateRequest, UpdateResponse
from ..validation import INT64_MAX

DELETED = UpdateRequest.DELETED_FIELD_NUMBER
# Kinds of fields on the wire.
VARINT, BYTES = 0, 2
KINDS = {
    TaskRef.ID_FIELD_NUMBER: VARINT,
    TaskRef.SELECTOR_FIELD_NUMBER: BYTES,
    TaskRef.GROUP_FIELD_NUMBER: BYTES,
}

RIGHT = "a TaskRef with exactly one of id, selector and group"


def refuse_plain_ids(body: bytes) -> None:
    """Raise InvalidInput unless each record of `deleted` in an UpdateRequest is a TaskRef with one field.

    A message that was read does not tell: of several fields in a TaskRef it keeps the last.
    """
    records = [field for field in _fields_of(body) if field.field_number == DELETED]
    wrong = {
        f"deleted[{place}]": [RIGHT]
        for place, record in enumerate(records)
        if record.wire_type != BYTES or not _is_ref(record.data)
    }
    if wrong:
        raise InvalidInput(wrong)


def plain_ids(request: UpdateRequest) -> list[int]:
    """The ids that somebody with the older definition may have meant by `deleted`; none when that can't be."""
    if len(request.deleted) != 1:
        return []
    try:
        # A record of bytes, read as one of numbers.
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
    """The fields as they are on the wire: to a message that has none they are all unknown."""
    fields: Any = UnknownFieldSet(Empty.FromString(message))  # Its types forget that it can be gone through.
    return list(fields)
