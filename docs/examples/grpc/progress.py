"""Progress and forecast: show how many tasks are left, their rate, and when the group will be empty.

A dashboard can use the metric `masstasker_num_tasks`.
"""

import sys
import time

from store import Store

GROUP = "mail"
LOOK_EVERY_S = 0.2

store = Store(*sys.argv[1:])
began, first = time.monotonic(), store.count(GROUP)
print(f"{first} left", flush=True)
left = first
while left:
    time.sleep(LOOK_EVERY_S)
    left = store.count(GROUP)
    rate = (first - left) / (time.monotonic() - began)
    forecast = f", done in {left / rate:.1f} s" if rate > 0 else ""
    print(f"{left} left, {rate:.1f} a second{forecast}", flush=True)
