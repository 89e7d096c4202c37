"""`backup`, `restore` and `verify` as whoever runs a store types them: beside servers, from database to database."""

import json
import threading
import zipfile
from collections import Counter

import pytest

from .conftest import IS_POSTGRESQL, new_store
from .harness import START_SECONDS

TASKS = 40
GROUPS = ["mail", "reports"]


class Mover(threading.Thread):
    """Moves all tasks to and fro between two groups, each time in one commit."""

    def __init__(self, server, token):
        super().__init__()
        self.server, self.token, self.newest, self.stopped = server, token, 0, threading.Event()

    def commit(self, **body):
        answer = self.server.ask("POST", "/update", self.token, json={"clientid": 1, **body}).json()
        assert answer["error"] is None
        self.newest = max(task["id"] for task in answer["tasks"])
        return [task["id"] for task in answer["tasks"]]

    def run(self):
        here, there = GROUPS
        ids = self.commit(adds=[{"group": here, "data": "x" * 100}] * TASKS)
        while not self.stopped.wait(0.01):
            here, there = there, here
            ids = self.commit(deletes=ids, adds=[{"group": here, "id": old} for old in ids])

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.join(START_SECONDS)
        assert not self.is_alive()


@pytest.fixture
def other_place(tmp_path):
    """Where no server was ever started, on the database of this run."""
    folder = tmp_path / "other"
    folder.mkdir()
    with new_store(folder) as store:
        yield store


def test_a_backup_under_load_is_of_one_moment(store, other_place, tmp_path):
    file = tmp_path / "store.zip"
    with store.up() as server:
        with Mover(server, store.token) as mover:
            while not mover.newest:
                mover.stopped.wait(0.01)
            for _ in range(2):
                done = store.manage("backup", str(file))
                assert (done.returncode, done.stderr) == (0, "")
                groups = groups_in(file)
                assert len(groups) == 1
                assert groups.total() == TASKS
        assert (verified := store.manage("verify")).returncode == 0, verified.stdout
    # From the last backup, which more commits followed.
    restored = other_place.manage("restore", str(file))
    assert (restored.returncode, restored.stderr) == (0, "")
    assert other_place.manage("verify").stdout == "no problems found\n"
    with other_place.up() as server:
        [group] = server.ask("GET", "/groups", other_place.token).json()
        assert len(server.ask("GET", f"/group/{group}?owned=yes", other_place.token).json()) == TASKS
        asked = {"clientid": 1, "adds": [{"group": "mail"}]}
        [task] = server.ask("POST", "/update", other_place.token, json=asked).json()["tasks"]
        assert task["id"] > mover.newest + 2**31
    assert other_place.manage("verify").stdout == "no problems found\n"


def groups_in(file):
    with zipfile.ZipFile(file) as archive:
        lines = archive.read("tasks_app_task.ndjson").splitlines()
    return Counter(json.loads(line)[1] for line in lines)


@pytest.mark.skipif(not IS_POSTGRESQL, reason="needs both databases")
def test_a_store_moves_from_one_database_to_the_other_and_back(store, sqlite_store, other_place, tmp_path):
    first, second = tmp_path / "first.zip", tmp_path / "second.zip"
    add = {"group": "mail", "data_base64": "AP8=", "labels": {"für": "Ann"}, "error": "no\nluck", "priority": -5}
    with store.up() as server:
        secret = store.manage("token", "create", "ann", "--scope", "work").stdout.strip()
        asked = {"clientid": 2**63 - 1, "adds": [add, {"group": "mail", "data": "x" * 100_000}]}
        tasks = server.ask("POST", "/update", secret, json=asked).json()["tasks"]
        assert store.manage("backup", str(first)).returncode == 0
    assert sqlite_store.manage("restore", str(first)).returncode == 0
    assert sqlite_store.manage("verify").stdout == "no problems found\n"
    with sqlite_store.up() as server:
        assert seen_by(server, secret) == tasks
        assert sqlite_store.manage("backup", str(second)).returncode == 0
    assert other_place.manage("restore", str(second)).returncode == 0
    assert other_place.manage("verify").stdout == "no problems found\n"
    with other_place.up() as server:
        assert seen_by(server, secret) == tasks


def seen_by(server, secret):
    """All tasks of the group, by id; and the one with the label is found by it."""
    assert len(server.ask("GET", "/search?q=label.für:Ann", secret).json()["tasks"]) == 1
    return sorted(server.ask("GET", "/group/mail?owned=yes", secret).json(), key=lambda task: task["id"])


@pytest.mark.once
def test_a_store_that_is_served_is_not_restored(store, tmp_path):
    file = tmp_path / "store.zip"
    with store.up():
        assert store.manage("backup", str(file)).returncode == 0
        refused = store.manage("restore", str(file))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("taskstore: another server")
    # What it left is as good as empty: its admin has come no further than the one-time password.
    assert store.manage("restore", str(file)).returncode == 0


@pytest.mark.once
@pytest.mark.parametrize("command", [["backup", "store.zip"], ["verify"]], ids=" ".join)
def test_they_need_a_store(sqlite_store, command):
    refused = sqlite_store.manage(*command)
    assert refused.returncode == 2
    assert "there is no store in" in refused.stderr
