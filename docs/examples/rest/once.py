"""Add a task only once: however often it is asked for, one reminder waits for each customer.

Each task in the group `orders` names a customer. All workers may ask for the same reminder at the same time.
"""

import sys

from store import Store

IDLE_MS = 300

store = Store(*sys.argv[1:])
while order := store.claim("orders", wait_ms=IDLE_MS):
    customer = order["data"]
    reminder = {"group": "reminders", "data": customer, "unique": customer}
    # A taken key refuses nothing: the rest of the commit is done.
    [task] = store.commit(deletes=[order["id"]], adds=[reminder])
    print("waits already" if task.get("duplicate") else "added", task["id"], flush=True)
