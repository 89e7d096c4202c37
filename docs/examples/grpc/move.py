"""Commit by move: the result of one step becomes the task of the next in one Update, so none is lost or repeated."""

import sys
from datetime import timedelta

from taskstore.masstasker.client import connect

LEASE = timedelta(seconds=30)
STEPS = [("draft", "checked"), ("checked", "sent")]

with connect(*sys.argv[1:]) as store:
    for group, next_group in STEPS:
        while task := store.query(group, own_for=LEASE):
            task.data.value += f", {next_group}".encode()
            store.move(next_group, task)
