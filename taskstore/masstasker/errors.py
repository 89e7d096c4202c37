"""The errors of the MassTasker client.

MassTaskerError
  NotFound         a task to delete is gone: drop the work
  Refused          a required task is gone, or a task is leased to another client: read again, or drop the work
  InvalidInput     a value is invalid: correct it
  NotAllowed       the token is missing, not valid or not sufficient: get another one
  TooMuch          a limit or rate limit is exceeded: ask for less, or later
  Unavailable      the server can't be reached: try again later
    NoAnswer       the time limit was exceeded: check whether the call took effect before trying again
LeaseLost          another client may have the task: drop the work
Unrecoverable      raised by the work: the task can never succeed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import grpc
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status import rpc_status


class MassTaskerError(Exception):
    """The base class of the server's errors. `code` is the gRPC status, `reason` the store's own error code."""

    def __init__(
        self, text: str, code: grpc.StatusCode, *, reason: str = "", fields: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        super().__init__(text)
        self.code = code
        self.reason = reason  # Such as `commit_unknown`.
        self.fields = fields or {}  # Of InvalidInput: {"created[0].group": ["..."]}.


class NotFound(MassTaskerError):
    """A task that the Update deletes is gone: done, or owned by another client now. Nothing was changed."""


class Refused(MassTaskerError):
    """A required task is gone, or a task is leased to another client. Nothing was changed."""


class InvalidInput(MassTaskerError):
    """Values are invalid; `fields` contains the messages for each field. Nothing was changed."""


class NotAllowed(MassTaskerError):
    """The token is missing or not valid, or does not allow this call or group. Nothing was changed."""


class TooMuch(MassTaskerError):
    """A limit of the store or the rate limit of the token is exceeded. Nothing was changed."""


class Unavailable(MassTaskerError):
    """The server can't be reached, or can't reach its database.

    It is not known whether an Update happened if the connection broke during the call, or if the reason is
    `commit_unknown`.
    """


class NoAnswer(Unavailable):
    """There was no response within the time limit. It is not known whether an Update happened."""


class LeaseLost(Exception):
    """The lease ended during the work, so another client may do the task again. Nothing was committed."""


class Unrecoverable(Exception):
    """Raise it if retrying can't help, as with invalid data: the task is moved to the error group."""


KINDS = {
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.FAILED_PRECONDITION: Refused,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidInput,
    grpc.StatusCode.UNAUTHENTICATED: NotAllowed,
    grpc.StatusCode.PERMISSION_DENIED: NotAllowed,
    grpc.StatusCode.RESOURCE_EXHAUSTED: TooMuch,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: NoAnswer,
}


def translated(problem: grpc.RpcError) -> MassTaskerError:
    """Convert an error of gRPC."""
    code = problem.code()
    reason, wrong = ErrorInfo(), BadRequest()
    status = rpc_status.from_call(cast(grpc.Call, problem))  # The errors of calls are calls too.
    for detail in status.details if status else ():
        for known in (reason, wrong):  # Unpacks only into the matching type.
            detail.Unpack(known)
    fields: dict[str, list[str]] = {}
    for violation in wrong.field_violations:
        fields.setdefault(violation.field, []).append(violation.description)
    kind = KINDS.get(code, MassTaskerError)
    return kind(problem.details() or code.name, code, reason=reason.reason, fields=fields)
