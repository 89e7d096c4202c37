"""Lease with renewal: nobody else gets a task while its worker lives, and somebody does soon after it died.

Each task of the group `mail` is a number of steps, of which each takes a while.
"""

import sys
import time

from store import Refused, Store

LEASE_MS = 2_000
IDLE_MS = 300


def send(store, task):
    # A worker that works in one piece would renew in a thread of its own.
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
        print("too late: somebody else has it now", flush=True)
