"""Lease with renewal: a worker keeps its task while it is alive; soon after it dies, another one gets the task.

Each task of the group `mail` contains a number of steps, each of which takes a while.
"""

import sys
import time

from store import Refused, Store, new_task

LEASE_S = 2
IDLE_S = 0.3


def send(store, task):
    # A worker whose work has no steps would renew the lease in a thread.
    for _ in range(int(task.data.value)):
        store.renew(task, LEASE_S)
        time.sleep(0.1)
    store.commit(created=[new_task("sent", task.data.value)], deleted=[task])


store = Store(*sys.argv[1:])
while task := store.query("mail", LEASE_S, IDLE_S):
    try:
        send(store, task)
        print("sent", flush=True)
    except Refused:
        print("too late: another worker has it now", flush=True)
