"""Python functions run as jobs, each in a process of its own (contract.md section 7). No Django.

`job` makes a function one; `tasks_app.jobs.worker` runs them; `current_job` says inside of one which it is.
"""

from .registry import JobFunction, UnknownFunction, job
from .running import JobContext, current_job

__all__ = ["JobContext", "JobFunction", "UnknownFunction", "current_job", "job"]
