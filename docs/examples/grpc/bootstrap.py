"""Bootstrap task: of workers that start together, one adds the tasks, and all process them.

`up --bootstrap-group bootstrap` adds the bootstrap task to a new store.
"""

import sys

from store import Store, new_task

LEASE_S = 30
IDLE_S = 0.3


def find_work():
    """Return the work to do. A real program would list files or read a database."""
    return [f"mail {number}".encode() for number in range(20)]


store = Store(*sys.argv[1:])
if bootstrap := store.query("bootstrap", LEASE_S):
    found = find_work()
    # One commit: if this worker dies first, another one claims the bootstrap task.
    store.commit(created=[new_task("mail", data) for data in found], deleted=[bootstrap])
    print(f"made {len(found)}", flush=True)
while task := store.query("mail", LEASE_S, IDLE_S):
    store.commit(deleted=[task])
    print("did 1", flush=True)
