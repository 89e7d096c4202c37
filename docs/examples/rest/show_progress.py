"""Show progress: a worker reports the progress of its task.

Each task of the group `books` contains a number of pages, each of which takes a while.
"""

import sys
import time

from store import Refused, Store

LEASE_MS = 30_000
IDLE_MS = 300
PAGE_S = 0.1


def print_book(store, task):
    pages = int(task["data"])
    for page in range(1, pages + 1):
        time.sleep(PAGE_S)
        # The store keeps the last report of each second, so a worker can report often.
        store.report(task, page / pages, f"page {page} of {pages}")
    store.commit(adds=[{"group": "printed", "data": task["data"]}], deletes=[task["id"]])


store = Store(*sys.argv[1:])
while task := store.claim("books", LEASE_MS, IDLE_MS):
    try:
        print_book(store, task)
        print("printed", flush=True)
    except Refused:
        print("too late: another worker has it now", flush=True)
