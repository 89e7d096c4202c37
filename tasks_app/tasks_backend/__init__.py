"""The backend for Django's task framework, which a project names in its setting TASKS.

Models can be imported only when the apps are ready, and modules with tasks may be imported before:
this package imports models only when a job is enqueued or searched for.
"""

from .backend import TaskStoreBackend
from .batches import batch, batch_results, planned
from .signals import task_retried

__all__ = ["TaskStoreBackend", "batch", "batch_results", "planned", "task_retried"]
