"""Add a task only once: however often it is requested, each customer gets one reminder.

Each task in the group `orders` contains a customer. Several workers may request the same reminder at the same time.
"""

import sys

from store import Store

IDLE_MS = 300

store = Store(*sys.argv[1:])
while order := store.claim("orders", wait_ms=IDLE_MS):
    customer = order["data"]
    reminder = {"group": "reminders", "data": customer, "unique": customer}
    # If the key is taken, the rest of the commit still takes effect.
    [task] = store.commit(deletes=[order["id"]], adds=[reminder])
    print("already waiting" if task.get("duplicate") else "added", task["id"], flush=True)
