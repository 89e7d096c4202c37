"""What can go wrong between a client and the server, as a part of the tree of `taskstore.errors`.

TaskStoreError
  InvalidInput, LimitExceeded, CommitRefused, JobUnfinished, KeyReused, StoreBusy    as the store raises them
  StoreUnavailable     the server can't be reached, or not its database; it was tried for as long as was allowed
    CommitUnknown      the connection broke, and nobody could be asked again: it happened or not
  NotAllowed           there is no valid token, or it does not allow this
  NotFound             there is no such thing
  TooOften             more requests than the server takes from this token or address
  UnexpectedAnswer     something else than a task store has answered, or the server is broken
"""

from __future__ import annotations

from ..errors import TaskStoreError


class NotAllowed(TaskStoreError):
    """There is no valid token, or it does not allow this, or not in this group. Nothing was changed.

    Get another one: `taskstore token create NAME --scope work`.
    """

    code = "not_allowed"


class NotFound(TaskStoreError):
    """There is no such thing. Nothing was changed."""

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
