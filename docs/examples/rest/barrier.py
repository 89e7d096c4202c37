"""Barrier: when the last of many parallel parts is done, start the next phase once.

The task in the group `barrier` lists the results so far: {"parts": 12, "results": [...]}. Each part is a number to
square.
"""

import json
import random
import sys
import time

from store import Refused, Store

LEASE_MS = 10_000
IDLE_MS = 300


def pass_barrier(store, part, result):
    """Commit the part together with its entry in the barrier. Raises Refused if another part was faster."""
    barrier = store.first("barrier")
    state = json.loads(barrier["data"])
    state["results"].append(result)
    is_last = len(state["results"]) == state["parts"]
    new = {"group": "joined" if is_last else "barrier", "data": json.dumps(state)}
    store.commit(adds=[new], deletes=[part["id"], barrier["id"]])


store = Store(*sys.argv[1:])
while part := store.claim("parts", LEASE_MS, IDLE_MS):
    result = int(part["data"]) ** 2
    while True:
        try:
            pass_barrier(store, part, result)
            break
        except Refused as refused:
            if part["id"] in refused.ids.get("deletes", ()):
                break  # The lease has ended: another worker has the part.
            time.sleep(random.uniform(0, 0.05))
