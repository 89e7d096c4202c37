"""The errors of the client, which extend the tree of `taskstore.errors`.

TaskStoreError
  InvalidInput, LimitExceeded, CommitRefused, NotHeld, JobUnfinished, KeyReused, StoreBusy    as the store raises them
  StoreUnavailable     the server or its database could not be reached within `patience_s`
    CommitUnknown      the connection broke and retrying did not help: the change may or may not have happened
  NotAllowed           the token is missing, not valid, or does not allow this
  NotFound             the object does not exist
  TooOften             the rate limit of this token or address was exceeded
  UnexpectedAnswer     the response is not one of a task store, or the server failed
"""

from __future__ import annotations

from ..errors import TaskStoreError


class NotAllowed(TaskStoreError):
    """The token is missing, not valid, or does not allow this call or group. Nothing was changed.

    Create a token with `taskstore token create NAME --scope work`.
    """

    code = "not_allowed"


class NotFound(TaskStoreError):
    """The object does not exist. Nothing was changed."""

    code = "not_found"


class TooOften(TaskStoreError):
    """The rate limit was exceeded. Nothing was changed. Try again after `retry_after_s` seconds."""

    code = "too_often"

    def __init__(self, text: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(text)


class UnexpectedAnswer(TaskStoreError):
    """The response is not one of a task store. Check the address, any proxy, and the server's log."""

    code = "unexpected"
