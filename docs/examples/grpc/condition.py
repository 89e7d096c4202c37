"""Config task as a condition: nothing is committed that was made by a config which has been replaced meanwhile.

The task in the group `config` is the greeting of each mail.
"""

import sys
import time
from datetime import timedelta

from taskstore.masstasker.client import Refused, connect, create, delete, new_task, require

LEASE = timedelta(seconds=30)
IDLE = timedelta(seconds=0.3)


def send(store, mail):
    config = store.query("config", wait=LEASE)  # Read, and not owned: all workers have it at once.
    time.sleep(0.1)
    text = config.data.value + b", " + mail.data.value
    store.do(require(config), delete(mail), create(new_task("sent", text)))


with connect(*sys.argv[1:]) as store:
    while mail := store.query("mail", own_for=LEASE, wait=IDLE):
        try:
            send(store, mail)
            print("sent", flush=True)
        except Refused:
            store.disown(mail)
            print("once more: the config has changed", flush=True)
