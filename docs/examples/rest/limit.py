"""Limit: workers call an API for customers, and never for the same customer twice at the same time.

Each task in the group `calls` has the label `customer`. However many workers there are, the store hands out at most one
task of each customer, and the tasks of the others meanwhile.
"""

import sys
import time

from store import Store

LEASE_MS = 30_000
IDLE_MS = 500
CALL_S = 0.1

store = Store(*sys.argv[1:])
store.limit("calls", running=1, by="customer")
while call := store.claim("calls", LEASE_MS, IDLE_MS):
    began_s = time.time()
    time.sleep(CALL_S)
    print(call["labels"]["customer"], began_s, time.time(), flush=True)
    store.commit(deletes=[call["id"]])
