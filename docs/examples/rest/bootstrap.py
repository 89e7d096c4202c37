"""Bootstrap task: of workers that start together, one adds the tasks, and all process them.

`up --bootstrap-group bootstrap` adds the bootstrap task to a new store.
"""

import sys

from store import Store

IDLE_MS = 300


def find_work():
    """Return the work to do. A real program would list files or read a database."""
    return [f"mail {number}" for number in range(20)]


store = Store(*sys.argv[1:])
if bootstrap := store.claim("bootstrap"):
    found = find_work()
    # One commit: if this worker dies first, another one claims the bootstrap task.
    store.commit(adds=[{"group": "mail", "data": data} for data in found], deletes=[bootstrap["id"]])
    print(f"made {len(found)}", flush=True)
while task := store.claim("mail", wait_ms=IDLE_MS):
    store.commit(deletes=[task["id"]])
    print("did 1", flush=True)
