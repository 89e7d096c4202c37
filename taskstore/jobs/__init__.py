"""Python functions run as jobs, each in a process of its own (contract.md section 7). No Django.

`taskstore.job` makes a function a job, `worker` runs jobs, and `taskstore.current_job` says inside of one which it is.
"""
