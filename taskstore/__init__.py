"""Task Store for Python programs: `pip install taskstore`. It needs no Django.

from taskstore import Client

with Client() as store:
    store.add("mail", "hello")
    for task in store.claim("mail", duration_ms=30_000, wait_ms=60_000):
        print(task.text)
        store.delete(task)

The names are loaded on first use, so that a Django project that imports only the types does not load the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client.client import AsyncClient as AsyncClient
    from .client.client import Client as Client
    from .client.errors import BatchFailed as BatchFailed
    from .client.errors import JobFailed as JobFailed
    from .client.errors import NotAllowed as NotAllowed
    from .client.errors import NotFound as NotFound
    from .client.errors import TooOften as TooOften
    from .client.errors import UnexpectedAnswer as UnexpectedAnswer
    from .errors import CommitRefused as CommitRefused
    from .errors import CommitUnknown as CommitUnknown
    from .errors import InvalidInput as InvalidInput
    from .errors import JobUnfinished as JobUnfinished
    from .errors import KeyReused as KeyReused
    from .errors import LimitExceeded as LimitExceeded
    from .errors import NotHeld as NotHeld
    from .errors import StoreBusy as StoreBusy
    from .errors import StoreUnavailable as StoreUnavailable
    from .errors import TaskStoreError as TaskStoreError
    from .jobs.batches import JobGroup as JobGroup
    from .jobs.batches import chain as chain
    from .jobs.batches import group as group
    from .jobs.registry import JobContext as JobContext
    from .jobs.registry import JobFunction as JobFunction
    from .jobs.registry import SoftTimeLimit as SoftTimeLimit
    from .jobs.registry import UnknownFunction as UnknownFunction
    from .jobs.registry import current_job as current_job
    from .jobs.registry import job as job
    from .jobs.results import read_results as read_results
    from .types.batches import Batch as Batch
    from .types.batches import Plan as Plan
    from .types.command_record import CommandStatus as CommandStatus
    from .types.commands import Submission as Submission
    from .types.job_record import RESULT as RESULT
    from .types.job_record import JobOptions as JobOptions
    from .types.job_record import JobStatus as JobStatus
    from .types.jobs import Job as Job
    from .types.limits import GroupLimit as GroupLimit
    from .types.limits import Rate as Rate
    from .types.schedules import DueJob as DueJob
    from .types.schedules import DueTask as DueTask
    from .types.schedules import Schedule as Schedule
    from .types.tasks import Change as Change
    from .types.tasks import NewTask as NewTask
    from .types.tasks import Order as Order
    from .types.tasks import Refusal as Refusal
    from .types.tasks import State as State
    from .types.tasks import Task as Task
    from .worker.handlers import Context as Context
    from .worker.handlers import Discard as Discard
    from .worker.handlers import LeaseLost as LeaseLost
    from .worker.handlers import Result as Result
    from .worker.handlers import Retry as Retry
    from .worker.handlers import Save as Save
    from .worker.handlers import Snooze as Snooze
    from .worker.worker import Worker as Worker

# The names by their modules: type checkers read the imports above.
_NAMES_OF = {
    ".client.client": "AsyncClient Client",
    ".client.errors": "BatchFailed JobFailed NotAllowed NotFound TooOften UnexpectedAnswer",
    ".errors": "CommitRefused CommitUnknown InvalidInput JobUnfinished KeyReused "
    "LimitExceeded NotHeld StoreBusy StoreUnavailable TaskStoreError",
    ".jobs.batches": "JobGroup chain group",
    ".jobs.results": "read_results",
    ".jobs.registry": "JobContext JobFunction SoftTimeLimit UnknownFunction current_job job",
    ".types.batches": "Batch Plan",
    ".types.command_record": "CommandStatus",
    ".types.commands": "Submission",
    ".types.job_record": "RESULT JobOptions JobStatus",
    ".types.jobs": "Job",
    ".types.limits": "GroupLimit Rate",
    ".types.schedules": "DueJob DueTask Schedule",
    ".types.tasks": "Change NewTask Order Refusal State Task",
    ".worker.handlers": "Context Discard LeaseLost Result Retry Save Snooze",
    ".worker.worker": "Worker",
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names.split()}
__all__ = [*_MODULE_OF]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
