"""Shell commands run by workers, a list at a time (contract.md section 7). No Django. For Linux.

`CommandWorker` claims lists; beside it a process of its own, the runner, runs their commands one after the other.
"""

from .worker import CommandWorker

__all__ = ["CommandWorker"]
