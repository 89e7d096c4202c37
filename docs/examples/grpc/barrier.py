"""Barrier: when the last of many parallel parts is done, start the next phase once.

The task in the group `barrier` lists the results so far: {"parts": 12, "results": [...]}. Each part is a number to
square.
"""

import json
import random
import sys
import time
from datetime import timedelta

from taskstore.masstasker.client import Refused, connect, create, delete, new_task, require

LEASE = timedelta(seconds=10)
IDLE = timedelta(seconds=0.3)


def pass_barrier(store, lease, result):
    """Commit the part together with its entry in the barrier. Raises Refused if another part was faster."""
    barrier = store.query("barrier", wait=LEASE)
    state = json.loads(barrier.data.value)
    state["results"].append(result)
    new = new_task("barrier", json.dumps(state).encode())
    if len(state["results"]) == state["parts"]:
        new.group = "joined"
    lease.commit(require(barrier), delete(barrier), create(new))


with connect(*sys.argv[1:]) as store:
    while part := store.query("parts", own_for=LEASE, wait=IDLE):
        with store.lease(part, LEASE) as lease:
            result = int(part.data.value) ** 2
            while True:
                try:
                    pass_barrier(store, lease, result)
                    break
                except Refused:
                    time.sleep(random.uniform(0, 0.05))
