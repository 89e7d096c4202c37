"""Tasks as messages."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from ..masstasker import masstasker_pb2 as pb
from ..models import Task
from ..operations import TaskRecord
from .reading import NANOS_IN_MS


def message_of(task: Task | TaskRecord) -> pb.Task:
    """The task. Data without a type is an Any without a type URL; no data at all is none."""
    message = pb.Task(
        id=task.id,
        group=task.group,
        labels=task.labels,
        not_before=time_of(task.available_at_ms),
        error=task.error,
    )
    if task.data or task.data_type:
        message.data.type_url, message.data.value = task.data_type, bytes(task.data)
    return message


def time_of(ms: int) -> Timestamp:
    seconds, rest_ms = divmod(ms, 1_000)
    return Timestamp(seconds=seconds, nanos=rest_ms * NANOS_IN_MS)
