"""Dead letter group: move a task that can never succeed to another group with its error.

Tasks of the group `orders` contain text such as `3 x 20`.
"""

import sys

from store import Store, new_task

LEASE_S = 30
IDLE_S = 0.3


def total(order):
    count, price = map(int, order.split(" x "))
    return count * price


store = Store(*sys.argv[1:])
while task := store.query("orders", LEASE_S, IDLE_S):
    try:
        done = new_task("totals", str(total(task.data.value.decode())).encode())
    except ValueError as problem:
        # After any other error the worker ends, and another worker retries the task.
        done = new_task("orders/failed", task.data.value, id=task.id, error=f"not an order: {problem}")
    store.commit(created=[done], deleted=[task])
