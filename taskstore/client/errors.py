"""What can go wrong between a client and the server, as a part of the tree of `taskstore.errors`.

TaskStoreError
  InvalidInput, LimitExceeded, CommitRefused, JobUnfinished, KeyReused, StoreBusy    as the store raises them
  StoreUnavailable     the server or its database can't be reached, after all the tries that the client allows
    CommitUnknown      the connection broke, so it is unknown whether the request was carried out
  NotAllowed           there is no valid token, or it does not allow this
  NotFound             it does not exist
  TooOften             more requests than the server takes from this token or address
  UnexpectedAnswer     the answer is not one of a task store, or the server is broken
"""

from __future__ import annotations

from ..errors import TaskStoreError


class NotAllowed(TaskStoreError):
    """There is no valid token, or it does not allow this, or not in this group. Nothing was changed.

    Get another one: `taskstore token create NAME --scope work`.
    """

    code = "not_allowed"


class NotFound(TaskStoreError):
    """It does not exist. Nothing was changed."""

    code = "not_found"


class TooOften(TaskStoreError):
    """More requests than the server takes. Nothing was changed. Try again after `retry_after_s` seconds."""

    code = "too_often"

    def __init__(self, text: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(text)


class UnexpectedAnswer(TaskStoreError):
    """No answer of a task store: look at the address, at what stands between, and at the server's log."""

    code = "unexpected"
