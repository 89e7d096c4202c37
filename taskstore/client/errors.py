"""The errors of the client, which extend the tree of `taskstore.errors`.

TaskStoreError
  InvalidInput, LimitExceeded, CommitRefused, NotHeld, JobUnfinished, KeyReused, StoreBusy    as the store raises them
  StoreUnavailable     the server or its database could not be reached within `patience_s`
    CommitUnknown      the connection broke and retrying did not help: the change may or may not have happened
  NotAllowed           the token is missing, not valid, or does not allow this
  NotFound             the object does not exist
  JobFailed, BatchFailed    what was waited for has failed, or was cancelled
  TooOften             the rate limit of this token or address was exceeded
  UnexpectedAnswer     the response is not one of a task store, or the server failed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import TaskStoreError

if TYPE_CHECKING:
    from ..types.batches import Batch
    from ..types.jobs import Job


class NotAllowed(TaskStoreError):
    """The token is missing, not valid, or does not allow this call or group. Nothing was changed.

    Create a token with `taskstore token create NAME --scope work`.
    """

    code = "not_allowed"


class NotFound(TaskStoreError):
    """The object does not exist. Nothing was changed."""

    code = "not_found"


class JobFailed(TaskStoreError):
    """The job that was waited for has failed or was cancelled: see `job`."""

    code = "job_failed"

    def __init__(self, job: Job) -> None:
        self.job = job
        if job.status == "cancelled":
            why = job.error.message if job.error else ""
            super().__init__(f"job {job.id} was cancelled{why and ': '}{why}")
        else:
            super().__init__(f"job {job.id} {job.status}: {job.error.line if job.error else 'unknown error'}")


class BatchFailed(TaskStoreError):
    """The batch that was waited for has failed, or waits for nothing but failed tasks: see `batch`.

    If its `closed_at_ms` is None, requeue these tasks, or complete the batch without them, and wait again.
    """

    code = "batch_failed"

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        super().__init__(f"batch {batch.id} is {batch.state}, with {batch.failed} failed of {batch.total}")


class TooOften(TaskStoreError):
    """The rate limit was exceeded. Nothing was changed. Try again after `retry_after_s` seconds."""

    code = "too_often"

    def __init__(self, text: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(text)


class UnexpectedAnswer(TaskStoreError):
    """The response is not one of a task store. Check the address, any proxy, and the server's log."""

    code = "unexpected"
