"""Batch: split a task into parts, and add up their results when the last part is done.

A task in the group `sums` holds a number. It is the first task of a batch, which adds a task to `totals` when its last
task has ended. Whoever claims it adds a task for each number up to it to the batch, in the commit that ends it. Workers
square the numbers of `parts`, and put each result into `squares`, in the commit that ends the part.
"""

import sys

from store import Store

LEASE_MS = 10_000
IDLE_MS = 500

store = Store(*sys.argv[1:])
while sums := store.claim("sums", LEASE_MS):
    numbers = range(1, int(sums["data"]) + 1)
    parts = [{"group": "parts", "data": str(number), "batch": sums["batch"]} for number in numbers]
    store.commit(adds=parts, deletes=[sums["id"]])
while part := store.claim("parts", LEASE_MS, IDLE_MS):
    square = {"group": "squares", "data": str(int(part["data"]) ** 2)}
    store.commit(adds=[square], deletes=[part["id"]])
while total := store.claim("totals", LEASE_MS):
    squares = store.all("squares")
    print(total["data"], sum(int(square["data"]) for square in squares), flush=True)
    store.commit(deletes=[total["id"], *(square["id"] for square in squares)])
