"""Dead letter group: move a task that can never succeed to another group with its error.

Tasks of the group `orders` contain text such as `3 x 20`.
"""

import sys
from datetime import timedelta

from taskstore.masstasker.client import Unrecoverable, connect, create, new_task

LEASE = timedelta(seconds=30)
IDLE = timedelta(seconds=0.3)


def total(order: str) -> int:
    """Return the total of an order. After any other error the worker ends, and another worker retries the task."""
    try:
        count, price = map(int, order.split(" x "))
    except ValueError as problem:
        raise Unrecoverable(f"not an order: {problem}") from problem
    return count * price


with connect(*sys.argv[1:]) as store:
    while task := store.query("orders", own_for=LEASE, wait=IDLE):
        with store.lease(task, LEASE, error_group="orders/failed") as lease:
            lease.commit(create(new_task("totals", str(total(task.data.value.decode())).encode())))
