"""Config task as a condition: results are rejected if the configuration has been replaced in the meantime.

The task in the group `config` contains the greeting for each mail.
"""

import sys
import time
from datetime import timedelta

from taskstore.masstasker.client import Refused, connect, create, delete, new_task, require

LEASE = timedelta(seconds=30)
IDLE = timedelta(seconds=0.3)


def send(store, mail):
    config = store.query("config", wait=LEASE)  # Only read it, so that all workers can use it.
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
            print("again: the config has changed", flush=True)
