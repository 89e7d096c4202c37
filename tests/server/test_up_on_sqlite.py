"""One server to a SQLite file, and what its end means for the ids."""

import pytest

from tasks_app.database import ID_JUMP

pytestmark = pytest.mark.once

OPPORTUNISTIC = {"TASKSTORE_DURABILITY": "opportunistic"}
PUBLIC = {"TASKSTORE_PUBLIC_URL": "https://tasks.example.org"}


@pytest.fixture
def store(sqlite_store):
    return sqlite_store


def test_a_second_server_is_refused_and_told_about_the_first(store):
    with store.up() as first:
        told = store.manage("up", "--port", "0", "--grpc-port", "0")
        assert told.returncode == 2
        assert told.stderr.count("\n") == 1
        assert f"process {first.pid}, {first.url}" in told.stderr
        assert first.end() == 0


def test_ids_jump_once_after_an_opportunistic_server_that_was_killed(store):
    with store.up(**OPPORTUNISTIC) as killed:
        add_task(store, killed)
    # A start that fails does not hide how the server before it ended.
    assert store.manage("up", "--host", "192.0.2.1", "--grpc-port", "0", **PUBLIC).returncode == 2
    assert ID_JUMP < id_after_restart(store) < ID_JUMP + 10
    assert ID_JUMP < id_after_restart(store) < ID_JUMP + 10


def test_ids_go_on_where_nothing_can_be_lost(store):
    with store.up(**OPPORTUNISTIC) as server:
        add_task(store, server)
        assert server.end() == 0
    with store.up() as killed:
        add_task(store, killed)
    assert id_after_restart(store) < 10


def add_task(store, server):
    asked = {"clientid": 1, "adds": [{"group": "mail"}]}
    [task] = server.ask("POST", "/update", store.token, json=asked).json()["tasks"]
    return task["id"]


def id_after_restart(store):
    """The id that a task gets from the next server, which is strict and ends in good order."""
    with store.up() as server:
        new = add_task(store, server)
        assert server.end() == 0
    return new


def test_a_damaged_file_is_503_not_500_and_the_server_is_not_ready(store):
    with store.up() as server:
        for _ in range(20):
            adds = [{"group": "mail", "data": "x" * 300}] * 100
            server.ask("POST", "/update", store.token, json={"clientid": 1, "adds": adds})
        assert server.end() == 0
    file = store.folder / "taskstore.sqlite3"
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.seek(size // 4096 // 2 * 4096)
        opened.write(b"\xff" * 4096 * 100)
    with store.up() as server:
        answers = [server.ask("GET", "/group/mail", store.token) for _ in range(3)]
        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(503, "damaged")}
        assert "an operator has to repair it" in answers[0].json()["detail"]
        assert server.ask("GET", "/readyz").status_code == 503
        assert server.ask("GET", "/healthz").status_code == 200
        page = server.ask("GET", "/console/login")
        assert page.status_code == 200
        server.end()
    assert server.complaints.count("the database is damaged") == 1
