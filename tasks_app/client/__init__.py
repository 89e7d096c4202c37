"""The store from Python, by its REST API: `pip install taskstore`. It needs no Django.

with Client() as store:
    store.add("mail", "hello")
    for task in store.claim("mail", duration_ms=30_000, wait_ms=60_000):
        print(task.text)
        store.delete(task)
"""

from ..command_record import CommandStatus
from ..errors import (
    CommitRefused,
    CommitUnknown,
    InvalidInput,
    JobUnfinished,
    KeyReused,
    LimitExceeded,
    StoreBusy,
    StoreUnavailable,
    TaskStoreError,
)
from ..job_record import JobOptions, JobStatus
from ..operations import Change, NewTask, Order, Refusal, State
from .answers import Task
from .async_client import AsyncClient
from .client import Client
from .commands import Submission
from .errors import NotAllowed, NotFound, TooOften, UnexpectedAnswer
from .jobs import Job
from .schedules import DueJob, DueTask, Schedule
from .work import Context, Discard, LeaseLost, Result, Save
from .worker import Worker

__all__ = [
    "AsyncClient",
    "Change",
    "Client",
    "CommandStatus",
    "CommitRefused",
    "CommitUnknown",
    "Context",
    "Discard",
    "DueJob",
    "DueTask",
    "InvalidInput",
    "Job",
    "JobOptions",
    "JobStatus",
    "JobUnfinished",
    "KeyReused",
    "LeaseLost",
    "LimitExceeded",
    "NewTask",
    "NotAllowed",
    "NotFound",
    "Order",
    "Refusal",
    "Result",
    "Save",
    "Schedule",
    "State",
    "StoreBusy",
    "StoreUnavailable",
    "Submission",
    "Task",
    "TaskStoreError",
    "TooOften",
    "UnexpectedAnswer",
    "Worker",
]
