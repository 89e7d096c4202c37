"""Config task as a condition: results are rejected if the configuration has been replaced in the meantime.

The task in the group `config` contains the greeting for each mail.
"""

import sys
import time

from store import Refused, Store, new_task

LEASE_S = 30
IDLE_S = 0.3


def send(store, mail):
    config = store.query("config", wait_s=LEASE_S)  # Only read it, so that all workers can use it.
    time.sleep(0.1)
    sent = new_task("sent", config.data.value + b", " + mail.data.value)
    store.commit(created=[sent], deleted=[mail], required=[config])


store = Store(*sys.argv[1:])
while mail := store.query("mail", LEASE_S, IDLE_S):
    try:
        send(store, mail)
        print("sent", flush=True)
    except Refused:
        store.renew(mail, 0)
        print("again: the config has changed", flush=True)
