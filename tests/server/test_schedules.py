"""Schedules on real servers, one of which is killed: each due time adds once."""

import time
from contextlib import ExitStack
from datetime import datetime

from .conftest import IS_POSTGRESQL
from .harness import wait_for

NAMES = [f"tick-{number}" for number in range(8)]  # So many that some are in hand when the server dies.
PLAN = {"cron": "every 1s", "catch_up": "all", "task": {"group": "ticks"}}


def dues(server, token):
    """The seconds for which each schedule has added a task, sorted."""
    found: dict[str, list[int]] = {name: [] for name in NAMES}
    for task in server.ask("GET", "/group", token, params={"name": "ticks", "owned": "yes"}).json():
        found[task["labels"]["schedule"]].append(round(datetime.fromisoformat(task["labels"]["due"]).timestamp()))
    return {name: sorted(seconds) for name, seconds in found.items()}


def test_each_due_time_adds_once_whichever_server_is_killed(store):
    with ExitStack() as servers:
        first = servers.enter_context(store.up())
        for name in NAMES:
            assert first.ask("PUT", f"/schedules/{name}", store.token, json=PLAN).status_code == 200
        if IS_POSTGRESQL:  # Both are at it.
            second = servers.enter_context(store.up(command="serve --workers 1"))
        wait_for(lambda: all(dues(first, store.token).values()), "the first due time of each")
        # Close to a whole second, when all are in hand.
        time.sleep(1 - time.time() % 1 + 0.01)
        first.kill()
        killed_s = time.time()
        if not IS_POSTGRESQL:  # Which has one server at a time: the next one makes up for what was missed.
            second = servers.enter_context(store.up())
        wait_for(
            lambda: all(seconds[-1] > killed_s + 2 for seconds in dues(second, store.token).values()),
            "a due time of each after the end of the first server",
        )
        for name, seconds in dues(second, store.token).items():
            assert seconds == [*range(seconds[0], seconds[-1] + 1)], name
