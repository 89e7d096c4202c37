"""Cancel: a worker stops what it does soon after somebody has cancelled the task.

Each task of the group `movies` contains a number of frames, each of which takes a while.
"""

import sys
import time

from store import Store

LEASE_MS = 600_000  # Long, because the worker need not renew it to learn of the end.
IDLE_MS = 300
FRAME_S = 0.1


def render(store, task):
    for _ in range(int(task["data"])):
        time.sleep(FRAME_S)
        if task["id"] in store.cancelled():
            return "cancelled"
    store.commit(deletes=[task["id"]])
    return "rendered"


store = Store(*sys.argv[1:])
while task := store.claim("movies", LEASE_MS, IDLE_MS):
    print(render(store, task), flush=True)
