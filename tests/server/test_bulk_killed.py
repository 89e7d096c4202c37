"""Bulk operations whose server is killed in the middle of them: the next server ends them, exactly."""

from contextlib import closing
from sqlite3 import connect
from typing import Any

import psycopg

from .harness import Server, Store, wait_for

TASKS = 10_000  # More than there is time for before the answer to the request that begins an operation.


def execute(store: Store, sql: str) -> list[tuple[Any, ...]]:
    if store.database_url:
        with psycopg.connect(store.database_url) as postgresql:
            result = postgresql.execute(sql)
            return result.fetchall() if result.description else []
    with closing(connect(store.folder / "taskstore.sqlite3", timeout=20)) as sqlite, sqlite:
        return sqlite.execute(sql).fetchall()


class Operator:
    """Whoever asks a server for operations."""

    def __init__(self, store: Store, server: Server) -> None:
        self.server, self.token = server, store.token

    def post(self, path: str, **body: Any) -> Any:
        return self.server.ask("POST", path, self.token, json=body).json()

    def get(self, path: str) -> Any:
        return self.server.ask("GET", path, self.token).json()

    def add(self, group: str) -> None:
        assert self.post("/update", clientid=1, adds=[{"group": group}] * TASKS)["error"] is None

    def purge(self, group: str) -> Any:
        seen = self.post("/bulk/preview", verb="purge", group=group)
        agreed = {"bound": seen["bound"], "as_of": seen["as_of"], "expected": TASKS, "typed": group}
        return self.post("/bulk", verb="purge", group=group, **agreed)

    def now(self, operation: Any) -> Any:
        return self.get(operation["links"]["operation"])

    def result(self, operation: Any) -> tuple[int, ...]:
        wait_for(lambda: self.now(operation)["state"] == "done", "the end of the operation")
        return tuple(self.now(operation)[name] for name in ("done", "skipped", "failed", "gone"))


def kill_in_the_middle(store: Store, server: Server, begun: Any) -> None:
    """While it waits to write what comes next."""
    with store.nobody_can_write():
        server.kill()
    [(done,)] = execute(store, "SELECT done FROM tasks_app_bulkoperation WHERE state = 'running'")
    assert 0 < begun["done"] <= done < TASKS
    # As if the ten seconds were over after which a process that is silent has died.
    execute(store, "UPDATE tasks_app_bulkoperation SET held_until_ms = 0")


def test_a_killed_server_leaves_a_purge_and_an_undo_that_the_next_one_ends_exactly(store):
    with store.up() as server:
        olaf = Operator(store, server)
        olaf.add("mail")
        purge = olaf.purge("mail")
        kill_in_the_middle(store, server, purge)
    with store.up() as server:
        olaf = Operator(store, server)
        assert olaf.result(purge) == (TASKS, 0, 0, 0)
        assert olaf.get("/groups") == []
        undo = olaf.post(purge["links"]["undo"])
        kill_in_the_middle(store, server, undo)
    with store.up() as server:
        olaf = Operator(store, server)
        assert olaf.result(undo) == (TASKS, 0, 0, 0)
        assert [(group["group"], group["ready"]) for group in olaf.get("/stats")["groups"]] == [("mail", TASKS)]
    living = execute(store, "SELECT count(*), count(DISTINCT origin), min(origin), max(origin) FROM tasks_app_task")
    assert living == [(TASKS, TASKS, 1, TASKS)]
    audit = execute(store, "SELECT action, done, skipped FROM tasks_app_auditentry WHERE done > 1 ORDER BY id")
    assert audit == [("purge", TASKS, 0), ("undo", TASKS, 0)]
