"""Dead letter group: a task that can never go well is moved aside with its error, and the others go on.

Each task of the group `orders` is like `3 x 20`.
"""

import sys

from store import Store

IDLE_MS = 300


def total(order):
    count, price = map(int, order.split(" x "))
    return count * price


store = Store(*sys.argv[1:])
while task := store.claim("orders", wait_ms=IDLE_MS):
    try:
        done = {"group": "totals", "data": str(total(task["data"]))}
    except ValueError as problem:
        # Any other error ends the worker, and leaves the task to others: that is for what another try may mend.
        failed = {"group": "orders/failed", "data": task["data"], "error": f"this is no order: {problem}"}
        done = {"id": task["id"], **failed}
    store.commit(adds=[done], deletes=[task["id"]])
