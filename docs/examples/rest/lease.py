"""Lease with renewal: a worker keeps its task while it is alive; soon after it dies, another one gets the task.

Each task of the group `mail` contains a number of steps, each of which takes a while.
"""

import sys
import time

from store import Refused, Store

LEASE_MS = 2_000
IDLE_MS = 300


def send(store, task):
    # A worker whose work has no steps would renew the lease in a thread.
    for _ in range(int(task["data"])):
        [task] = store.commit(updates=[{"id": task["id"], "keep": True, "timespec": -LEASE_MS}])
        time.sleep(0.1)
    store.commit(adds=[{"group": "sent", "data": task["data"]}], deletes=[task["id"]])


store = Store(*sys.argv[1:])
while task := store.claim("mail", LEASE_MS, IDLE_MS):
    try:
        send(store, task)
        print("sent", flush=True)
    except Refused:
        print("too late: another worker has it now", flush=True)
