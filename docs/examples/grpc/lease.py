"""Lease with renewal: a worker keeps its task while it is alive; soon after it dies, another one gets the task.

Each task of the group `mail` contains a number of steps, each of which takes a while.
"""

import sys
import time
from datetime import timedelta

from taskstore.masstasker.client import LeaseLost, connect, create, new_task

LEASE = timedelta(seconds=2)
IDLE = timedelta(seconds=0.3)

with connect(*sys.argv[1:]) as store:
    while task := store.query("mail", own_for=LEASE, wait=IDLE):
        try:
            # A thread renews the lease, so the work can take any time.
            with store.lease(task, LEASE) as lease:
                for _ in range(int(task.data.value)):
                    lease.check()
                    time.sleep(0.1)
                lease.commit(create(new_task("sent", task.data.value)))
            print("sent", flush=True)
        except LeaseLost:
            print("too late: another worker has it now", flush=True)
