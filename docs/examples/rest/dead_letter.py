"""Dead letter group: move a task that can never succeed to another group with its error.

Tasks of the group `orders` contain text such as `3 x 20`.
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
        # After any other error the worker ends, and another worker retries the task.
        failed = {"group": "orders/failed", "data": task["data"], "error": f"not an order: {problem}"}
        done = {"id": task["id"], **failed}
    store.commit(adds=[done], deletes=[task["id"]])
