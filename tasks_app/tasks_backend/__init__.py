"""Jobs as Django's task framework knows them: the backend that a project names in its setting TASKS.

Models can be imported only when the apps are ready, and a module with tasks may be imported before:
nothing here knows them until a job is enqueued or looked for.
"""

from .backend import TaskStoreBackend

__all__ = ["TaskStoreBackend"]
