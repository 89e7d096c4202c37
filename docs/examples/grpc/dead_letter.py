"""Dead letter group: a task that can never go well is moved aside with its error, and the others go on.

Each task of the group `orders` is like `3 x 20`.
"""

import sys
from datetime import timedelta

from taskstore.masstasker.client import Unrecoverable, connect, create, new_task

LEASE = timedelta(seconds=30)
IDLE = timedelta(seconds=0.3)


def total(order: str) -> int:
    """Any other error would end the worker, and leave the task to others: that is for what another try may mend."""
    try:
        count, price = map(int, order.split(" x "))
    except ValueError as problem:
        raise Unrecoverable(f"this is no order: {problem}") from problem
    return count * price


with connect(*sys.argv[1:]) as store:
    while task := store.query("orders", own_for=LEASE, wait=IDLE):
        with store.lease(task, LEASE, error_group="orders/failed") as lease:
            lease.commit(create(new_task("totals", str(total(task.data.value.decode())).encode())))
