"""Shell commands on a real server: switched on or off, and looked after beside it."""

from __future__ import annotations

import json

import pytest

from .conftest import IS_POSTGRESQL
from .harness import Server, Store, wait_for

COMMAND = "serve --workers 2" if IS_POSTGRESQL else "up"
PROJECT = "commands/nightly"
LINE = {"id": "1448978609795035000_0", "cmd": "true", "created": 1, "until": 4_000_000_000, "max_fails": 1}
LATE = {**LINE, "id": "1448978609795035001_0", "until": 1}


def update(server: Server, store: Store, **body):
    return server.ask("POST", "/update", store.token, json={"clientid": 7, **body})


def submit(server: Server, store: Store, command=LINE):
    return update(server, store, adds=[{"group": f"{PROJECT}/new", "data": json.dumps(command)}])


def tasks_in(server: Server, store: Store, status: str):
    return server.ask("GET", f"/group/{PROJECT}/{status}?owned=true", store.token).json()


def test_a_server_takes_no_commands_unless_it_is_told_to(store):
    with store.up(command=COMMAND) as server:
        refused = submit(server, store)
    assert refused.status_code == 403
    assert "--commands" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [(["--commands"], {}), pytest.param([], {"TASKSTORE_COMMANDS": "1"}, marks=pytest.mark.once)],
)
def test_a_server_that_takes_commands_looks_after_them(store, arguments, variables):
    with store.up(*arguments, command=COMMAND, TASKSTORE_COMMAND_LISTS="*=9/1d/0s", **variables) as server:
        assert submit(server, store).status_code == submit(server, store, LATE).status_code == 200
        wait_for(lambda: tasks_in(server, store, "open"), "a list")
        wait_for(lambda: tasks_in(server, store, "failed_time"), "the failure of what is late")
        claim = {"clientid": 7, "group": f"{PROJECT}/open"}
        [task] = server.ask("POST", "/claim", store.token, json=claim).json()["tasks"]
        made = json.loads(task["data"])
        ran = [{**each, "run": {"worker": "w", "exit_code": 0}} for each in made["commands"]]
        closed = {**made, "commands": ran, "worker": "w", "started": 1, "finished": 2}
        moved = {"group": f"{PROJECT}/closed", "data": json.dumps(closed), "id": task["id"]}
        assert update(server, store, adds=[moved], deletes=[task["id"]]).json()["error"] is None
        wait_for(lambda: tasks_in(server, store, "completed"), "its end")
        assert server.end() == 0
