"""Somebody's transaction holds a task that many want to cancel, and all others go on."""

from concurrent.futures import ThreadPoolExecutor

import psycopg

from .rest import Rest

CANCELS = 40  # More than there are connections in the pool.


def test_who_waits_for_a_lock_leaves_connections_to_those_who_read(store, command):
    with store.up(command=command) as server, Rest(server.url, store.token) as rest:
        asked = {"clientid": 1, "adds": [{"group": "mail"}]}
        [locked] = server.ask("POST", "/update", store.token, json=asked).json()["tasks"]
        batch = server.ask("POST", "/batches", store.token, json={"clientid": 1, "hold": True}).json()["batch"]["id"]

        def cancel(task: int) -> int:
            status: int = server.ask("POST", "/cancel", store.token, json={"ids": [task]}).status_code
            return status

        with psycopg.connect(store.database_url) as foreign, ThreadPoolExecutor(CANCELS) as clients:
            foreign.execute("SELECT 1 FROM tasks_app_task WHERE id = %s FOR UPDATE", [locked["id"]])
            waiting = [clients.submit(cancel, locked["id"]) for _ in range(CANCELS)]
            for _ in range(20):
                assert server.ask("GET", "/stats", store.token).status_code == 200
                assert server.ask("GET", f"/batches/{batch}", store.token).status_code == 200
                assert rest.claim("nothing", 1) == []
            assert not all(each.done() for each in waiting)
            assert {each.result() for each in waiting} == {503}
        assert cancel(locked["id"]) == 200
        assert "Traceback" not in server.complaints
