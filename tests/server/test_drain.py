"""Between the word to end and the end."""

import signal
import time
from contextlib import ExitStack
from datetime import datetime

from .conftest import IS_POSTGRESQL
from .harness import wait_for

ADD = {"clientid": 1, "adds": [{"group": "mail"}]}


def test_a_server_that_was_told_to_end_serves_on_but_is_not_ready(store, command):
    with store.up(command=command, TASKSTORE_DRAIN_SECONDS="20") as server:
        server.tell(signal.SIGTERM)
        wait_for(lambda: server.ask("GET", "/readyz").status_code == 503, "that it is not ready")
        refused = server.ask("GET", "/readyz")
        assert refused.headers["Retry-After"] == "1"
        assert "stopping" in refused.json()["detail"]
        assert server.ask("GET", "/healthz").status_code == 200
        assert server.ask("POST", "/update", store.token, json=ADD).json()["error"] is None


def test_it_ends_by_itself_when_that_time_is_over(store, command):
    with store.up(command=command, TASKSTORE_DRAIN_SECONDS="1") as server:
        assert server.end() == 0
        assert server.complaints == ""


# ---- Schedules on real servers, one of which is killed: each due time adds once


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
