"""Commit by move: the result of one step becomes the task of the next in one commit, so none is lost or repeated."""

import sys

from store import Store

STEPS = [("draft", "checked"), ("checked", "sent")]

store = Store(*sys.argv[1:])
for group, next_group in STEPS:
    while task := store.claim(group):
        data = f"{task['data']}, {next_group}"
        # With the id of a deleted task, an added task is its successor, with a common history.
        store.commit(adds=[{"id": task["id"], "group": next_group, "data": data}], deletes=[task["id"]])
