"""What can go wrong for a client of MassTasker, as a tree.

MassTaskerError
  NotFound         a deleted task is gone: drop the work
  Refused          a task that was required is gone, or somebody else holds one: look again, or drop the work
  InvalidInput     the caller's values make no sense: correct them
  NotAllowed       without a valid token, or with one that is not good for this: get another
  TooMuch          more than the store takes at once, or too often: ask for less, or later
  Unavailable      the server can't be reached: try again later
    NoAnswer       there was no answer in time: look whether it happened before trying again
LeaseLost          somebody else may have the task: drop the work
Unrecoverable      for the work to raise: the task can never go well
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import grpc
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status import rpc_status


class MassTaskerError(Exception):
    """The root of what the store answers instead of a result. `code` is gRPC's."""

    def __init__(
        self, text: str, code: grpc.StatusCode, *, reason: str = "", fields: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        super().__init__(text)
        self.code = code
        self.reason = reason  # The store's own word for it: `commit_unknown`, say.
        self.fields = fields or {}  # What is wrong with which: {"created[0].group": ["..."]}. Of InvalidInput.


class NotFound(MassTaskerError):
    """A task that the Update deletes is gone: done by somebody, or owned by somebody else now. Nothing was changed."""


class Refused(MassTaskerError):
    """A task that was required is gone, or a task is leased to somebody else. Nothing was changed."""


class InvalidInput(MassTaskerError):
    """Values that the store does not take; `fields` says which and why. Nothing was changed."""


class NotAllowed(MassTaskerError):
    """The token is missing or not valid, or its scope or its groups are too narrow. Nothing was changed."""


class TooMuch(MassTaskerError):
    """More than the store takes at once, or more often than it lets this token ask. Nothing was changed."""


class Unavailable(MassTaskerError):
    """The server can't be reached, or can't reach its database.

    Whether an Update has happened is not known when the connection broke while it was under way, or when the reason is
    `commit_unknown`.
    """


class NoAnswer(Unavailable):
    """There was no answer within the time limit. Whether an Update has happened is not known."""


class LeaseLost(Exception):
    """The lease of a task has ended while it was in work: somebody else may do it again. Nothing was committed."""


class Unrecoverable(Exception):
    """For the work to raise when trying again can't help, as with broken data: the task goes to the error group."""


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
    """What gRPC raised, as an error of the tree."""
    code = problem.code()
    reason, wrong = ErrorInfo(), BadRequest()
    for detail in _details(problem):
        for known in (reason, wrong):  # It goes where it fits.
            detail.Unpack(known)
    kind = KINDS.get(code, MassTaskerError)
    return kind(problem.details() or code.name, code, reason=reason.reason, fields=_by_field(wrong))


def _details(problem: grpc.RpcError) -> Iterable[Any]:
    status = rpc_status.from_call(cast(grpc.Call, problem))  # Each that a call raises is one too.
    return status.details if status else ()


def _by_field(wrong: BadRequest) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for violation in wrong.field_violations:
        fields.setdefault(violation.field, []).append(violation.description)
    return fields
