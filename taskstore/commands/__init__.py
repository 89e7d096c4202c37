"""Shell commands that workers run, a list at a time (contract.md section 7). No Django. Linux only.

`worker.CommandWorker` claims lists. A separate process, the runner, runs their commands one by one.
"""
