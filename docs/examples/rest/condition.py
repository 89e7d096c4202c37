"""Config task as a condition: results are rejected if the configuration has been replaced in the meantime.

The task in the group `config` contains the greeting for each mail.
"""

import sys
import time

from store import Refused, Store

IDLE_MS = 300


def send(store, mail):
    config = store.first("config")  # Only read it, so that all workers can use it.
    time.sleep(0.1)
    sent = {"group": "sent", "data": f"{config['data']}, {mail['data']}"}
    store.commit(depends=[config["id"]], deletes=[mail["id"]], adds=[sent])


store = Store(*sys.argv[1:])
while mail := store.claim("mail", wait_ms=IDLE_MS):
    try:
        send(store, mail)
        print("sent", flush=True)
    except Refused:
        store.commit(updates=[{"id": mail["id"], "keep": True, "release": True}])
        print("again: the config has changed", flush=True)
