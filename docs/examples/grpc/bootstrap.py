"""Bootstrap task: of workers that start together, one adds the tasks, and all process them.

`up --bootstrap-group bootstrap` adds the bootstrap task to a new store.
"""

import sys
from datetime import timedelta

from taskstore.masstasker.client import connect, create, delete, new_task

LEASE = timedelta(seconds=30)
IDLE = timedelta(seconds=0.3)


def find_work() -> list[bytes]:
    """Return the work to do. A real program would list files or read a database."""
    return [f"mail {number}".encode() for number in range(20)]


with connect(*sys.argv[1:]) as store:
    if bootstrap := store.query("bootstrap", own_for=LEASE):
        found = find_work()
        # One commit: if this worker dies first, another one claims the bootstrap task.
        store.do(delete(bootstrap), create(*(new_task("mail", data) for data in found)))
        print(f"made {len(found)}", flush=True)
    while task := store.query("mail", own_for=LEASE, wait=IDLE):
        store.delete(task)
        print("did 1", flush=True)
