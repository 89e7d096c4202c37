"""Lease with renewal: nobody else gets a task while its worker lives, and somebody does soon after it died.

Each task of the group `mail` is a number of steps, of which each takes a while.
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
            # A thread renews it in time: the work may take as long as it wants.
            with store.lease(task, LEASE) as lease:
                for _ in range(int(task.data.value)):
                    lease.check()
                    time.sleep(0.1)
                lease.commit(create(new_task("sent", task.data.value)))
            print("sent", flush=True)
        except LeaseLost:
            print("too late: somebody else has it now", flush=True)
