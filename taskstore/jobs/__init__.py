"""Python functions run as jobs, each in a separate process (contract.md section 7). No Django.

`taskstore.job` turns a function into a job, `worker` runs jobs, `taskstore.current_job` returns the running job.
"""
