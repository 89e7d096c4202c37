"""Progress and forecast: show how many tasks are left, their rate, and when the group will be empty.

The console's overview shows this for each group.
"""

import sys
import time

from store import Store

GROUP = "mail"
STATES = ("ready", "claimed", "expired", "scheduled")
LOOK_EVERY_S = 0.2


def left_in(stats):
    return sum(stats[state] for state in STATES) if stats else 0


store = Store(*sys.argv[1:])
began, first = time.monotonic(), left_in(store.stats(GROUP))
print(f"{first} left", flush=True)
left = first
while left:
    time.sleep(LOOK_EVERY_S)
    left = left_in(store.stats(GROUP))
    rate = (first - left) / (time.monotonic() - began)
    forecast = f", done in {left / rate:.1f} s" if rate > 0 else ""
    print(f"{left} left, {rate:.1f} a second{forecast}", flush=True)
