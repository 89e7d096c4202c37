"""Commit by move: the result of one step becomes the task of the next in one Update, so none is lost or repeated."""

import sys

from store import Store, new_task

LEASE_S = 30
STEPS = [("draft", "checked"), ("checked", "sent")]

store = Store(*sys.argv[1:])
for group, next_group in STEPS:
    while task := store.query(group, LEASE_S):
        data = task.data.value + f", {next_group}".encode()
        # With the id of a deleted task, a created task is its successor, with a common history.
        store.commit(created=[new_task(next_group, data, id=task.id)], deleted=[task])
