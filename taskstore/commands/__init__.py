"""Shell commands run by workers, a list at a time (contract.md section 7). No Django. For Linux.

`worker.CommandWorker` claims lists. A process of its own beside it, the runner, runs their commands one by one.
"""
