"""Config task as a condition: nothing is committed that was made by a config which has been replaced meanwhile.

The task in the group `config` is the greeting of each mail.
"""

import sys
import time

from store import Refused, Store

IDLE_MS = 300


def send(store, mail):
    config = store.first("config")  # Read, and not claimed: all workers have it at once.
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
        print("once more: the config has changed", flush=True)
