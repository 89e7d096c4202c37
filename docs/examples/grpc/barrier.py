"""Barrier: when the last of many parallel parts is done, start the next phase once.

The task in the group `barrier` lists the results so far: {"parts": 12, "results": [...]}. Each part is a number to
square.
"""

import json
import random
import sys
import time

from store import Refused, Store, new_task

LEASE_S = 10
IDLE_S = 0.3


def pass_barrier(store, part, result):
    """Commit the part together with its entry in the barrier. Raises Refused if another part was faster."""
    barrier = store.query("barrier", wait_s=LEASE_S)
    state = json.loads(barrier.data.value)
    state["results"].append(result)
    is_last = len(state["results"]) == state["parts"]
    new = new_task("joined" if is_last else "barrier", json.dumps(state).encode())
    store.commit(created=[new], deleted=[part, barrier])


store = Store(*sys.argv[1:])
while part := store.query("parts", LEASE_S, IDLE_S):
    result = int(part.data.value) ** 2
    while True:
        try:
            pass_barrier(store, part, result)
            break
        except Refused:
            time.sleep(random.uniform(0, 0.05))
        try:
            store.renew(part, LEASE_S)
        except Refused:
            break  # The lease has ended: another worker has the part.
