"""A worker as people write it, for tests that stop and kill it: mailer.py URL TOKEN LEASE_MS GRACE_S PROCESSES."""

import os
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

from taskstore import Client, Context, NewTask, Task, Worker

url, token, lease_ms, grace_s, processes = sys.argv[1:]
worker = Worker(
    Client(url, token=token), lease_ms=int(lease_ms), batch=2, grace_s=float(grace_s), processes=int(processes)
)


@worker.handle("mail")
def send(task: Task) -> NewTask:
    """The task says how many seconds it takes."""
    print("sending", os.getpid(), flush=True)
    time.sleep(float(task.text))
    return NewTask(group="sent", data=str(os.getpid()).encode())


@worker.handle("program", max_attempts=1)
def wait_for_a_program(task: Task) -> None:
    subprocess.run(["sh", "-c", "echo sending $$; exec sleep 600"], check=True)


@worker.handle("fatal", max_attempts=2, backoff=timedelta())
def die(task: Task) -> None:
    os._exit(3)


@worker.handle("unsendable", max_attempts=1)
def answer_nonsense(task: Task) -> NewTask:
    labels: Any = (label for label in "ab")
    return NewTask(group="sent", labels=labels)


@worker.handle("watched")
def watch(task: Task, context: Context) -> None:
    print("watching", os.getpid(), flush=True)
    context.lost.wait(60)
    print("told", context.lost.is_set(), flush=True)


if __name__ == "__main__":
    worker.run()
