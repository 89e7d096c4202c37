"""Answers and errors as gRPC messages and status codes."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, cast

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode
from grpc.aio import ServicerContext
from grpc_status import rpc_status

from taskstore.errors import CommitRefused, CommitUnknown, Forbidden, InvalidInput, LimitExceeded, TooManyGroups
from taskstore.masstasker import masstasker_pb2 as pb
from taskstore.types.tasks import FAILED_FROM, Refusal

from ..core.meters import meters
from ..core.operations import TaskRecord
from ..database.outage import RETRY_AFTER_S, translated
from ..models import Task
from .requests import IDS, NANOS_IN_MS, path_on_the_wire, type_url_of


def message_of(task: Task | TaskRecord) -> pb.Task:
    """Return the message of a task. Data without a type has an Any without a type URL; no data and no type, no Any."""
    message = pb.Task(
        id=task.id,
        group=task.group,
        labels={name: value for name, value in task.labels.items() if name != FAILED_FROM},
        not_before=time_of(task.available_at_ms),
        error=task.error,
    )
    if task.data or task.data_type:
        message.data.SetInParent()  # Also for empty data.
        message.data.type_url, message.data.value = type_url_of(task.data_type), bytes(cast("bytes", task.data))
    return message


def time_of(ms: int) -> Timestamp:
    seconds, rest_ms = divmod(ms, 1_000)
    return Timestamp(seconds=seconds, nanos=rest_ms * NANOS_IN_MS)


DOMAIN = "taskstore"
# A status is sent in a header, which clients limit to 8 kB.
MOST_NAMED = 10
LONGEST_TEXT = 200
LONGEST_REASON = 1_000  # It lists groups, each with the missing right.

# Meters for refusals that happen here; commits and claims count theirs.
REASONS = {
    StatusCode.UNAUTHENTICATED: "unauthenticated",
    StatusCode.PERMISSION_DENIED: "forbidden",
    StatusCode.INVALID_ARGUMENT: "invalid",
}

log = logging.getLogger(__name__)


class CallRefused(Exception):
    """Ends the call with this code and text."""

    def __init__(self, code: StatusCode, text: str, *, retry_after_s: int = 0) -> None:
        self.code, self.retry_after_s = code, retry_after_s
        super().__init__(text)


async def end(context: ServicerContext[Any, Any], method: str, error: Exception) -> NoReturn:
    """End the call with the status of an error. An unexpected error is logged with a request number."""
    match error:
        case CallRefused(code=StatusCode.RESOURCE_EXHAUSTED):
            meters.add("throttled" if error.retry_after_s else "limit")
        case CallRefused() if error.code in REASONS:
            meters.add(REASONS[error.code])
        case Forbidden():
            meters.add("forbidden")
        case InvalidInput():
            meters.add("limit" if isinstance(error, LimitExceeded) else "invalid")
    status = status_of(error)
    if status is None:
        number = secrets.token_hex(8)
        log.error("request %s failed: %s", number, method, exc_info=error)
        text = f"Internal server error. The server's log describes it under request number {number}."
        status = _status(StatusCode.INTERNAL, text)
    await context.abort_with_status(rpc_status.to_status(status))


def status_of(error: Exception) -> Status | None:
    """Return the status for an error; None for an unexpected one."""
    match error:
        case CallRefused():
            return _status(error.code, str(error), *_retry(error.retry_after_s))
        case Forbidden():
            return _status(StatusCode.PERMISSION_DENIED, _shortened(str(error), LONGEST_REASON), _info(error.code))
        case CommitRefused():
            return _refused(error.refusal)
        case TooManyGroups():
            return _status(StatusCode.RESOURCE_EXHAUSTED, _shortened(str(error), LONGEST_REASON), _info(error.code))
        case InvalidInput():
            return _invalid(error)
        case CommitUnknown():  # Without advice to retry: the client must check first.
            return _status(StatusCode.UNAVAILABLE, str(error), _info(error.code))
    if away := translated(error):
        return _status(StatusCode.UNAVAILABLE, str(away), _info(away.code), *_retry(RETRY_AFTER_S))
    return None


def _refused(refusal: Refusal) -> Status:
    """Return the status of the first reason, in MassTasker's order, with all reasons in the details."""
    reasons = [
        (StatusCode.FAILED_PRECONDITION, "predicates", "predicates name tasks that do not exist", refusal.depends),
        (StatusCode.NOT_FOUND, "deleted", "deleted names tasks that do not exist", refusal.deletes),
        (StatusCode.FAILED_PRECONDITION, "owned", "tasks are leased to another client", refusal.owned),
    ]
    given = [(code, name, f"{what}: {_listed(ids)}", ids) for code, name, what, ids in reasons if ids]
    text = "; ".join(text for _, _, text, _ in given)
    return _status(given[0][0], text, _info(CommitRefused.code, {name: _listed(ids) for _, name, _, ids in given}))


def _listed(ids: Iterable[int]) -> str:
    numbers = [str(task_id % IDS) for task_id in ids]
    more = len(numbers) - MOST_NAMED
    return ", ".join(numbers[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _invalid(error: InvalidInput) -> Status:
    violations = [
        BadRequest.FieldViolation(field=_shortened(path_on_the_wire(path)), description=_shortened(" ".join(texts)))
        for path, texts in list(error.fields.items())[:MOST_NAMED]
    ]
    text = "; ".join(f"{violation.field}: {violation.description}" for violation in violations[:3])
    return _status(StatusCode.INVALID_ARGUMENT, text, BadRequest(field_violations=violations), _info(error.code))


def _shortened(text: str, longest: int = LONGEST_TEXT) -> str:
    # The client's text may be as long as the request.
    return text if len(text) <= longest else f"{text[:longest]}…"


def _info(reason: str, metadata: Mapping[str, str] | None = None) -> ErrorInfo:
    return ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata)


def _retry(after_s: int) -> list[RetryInfo]:
    return [RetryInfo(retry_delay=Duration(seconds=after_s))] if after_s else []


def _status(code: StatusCode, text: str, *details: Message) -> Status:
    packed = [AnyMessage() for _ in details]
    for each, detail in zip(packed, details, strict=True):
        each.Pack(detail)
    number: int = code.value[0]
    return Status(code=number, message=text, details=packed)
