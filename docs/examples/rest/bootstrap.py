"""Bootstrap task: of workers that start together one makes the tasks, whichever, and all do them.

`up --bootstrap-group bootstrap` puts that task into a new store.
"""

import sys

from store import Store

IDLE_MS = 300


def find_work():
    """In earnest this would list files, or read a database."""
    return [f"mail {number}" for number in range(20)]


store = Store(*sys.argv[1:])
if bootstrap := store.claim("bootstrap"):
    found = find_work()
    # Both or neither: a worker that dies before leaves the bootstrap task for another one.
    store.commit(adds=[{"group": "mail", "data": data} for data in found], deletes=[bootstrap["id"]])
    print(f"made {len(found)}", flush=True)
while task := store.claim("mail", wait_ms=IDLE_MS):
    store.commit(deletes=[task["id"]])
    print("did 1", flush=True)
