"""A server that is killed while it and another one add tasks with the same keys: one task has each key afterwards."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import psycopg
import pytest

from tests.behaviour.databases import only_postgresql

from .harness import wait_for
from .nodes import node

pytestmark = only_postgresql

KEYS = [f"letter {number}" for number in range(20)]
ENOUGH = 20  # Commits.


class Adder:
    """Adds tasks with keys that others add, too, and deletes some, until its server is gone or it is stopped."""

    def __init__(self, server, token, number):
        self.server, self.token, self.number = server, token, number
        self.chance = random.Random(number)
        self.added = self.duplicates = self.commits = 0
        self.stop = threading.Event()

    def run(self):
        mine: list[int] = []
        while not self.stop.is_set():
            adds = [{"group": "mail", "unique": key} for key in self.chance.sample(KEYS, 8)]
            asked = {"clientid": self.number, "adds": adds, "deletes": mine[:4]}
            try:
                answer = self.server.ask("POST", "/update", self.token, json=asked).json()
            except httpx.TransportError:
                return
            assert answer["error"] is None
            made = [task["id"] for task in answer["tasks"] if not task.get("duplicate")]
            mine = mine[4:] + made
            self.added += len(made)
            self.duplicates += len(adds) - len(made)
            self.commits += 1


@pytest.fixture
def other(store, tmp_path):
    return node(tmp_path, store.database_url, "other")


def test_a_killed_server_leaves_one_task_for_each_key(store, other):
    with store.up() as doomed, other.up() as server, ThreadPoolExecutor(4) as pool:
        adders = [
            Adder(each, place.token, number)
            for number, (each, place) in enumerate([(doomed, store), (server, other)] * 2, 1)
        ]
        running = [pool.submit(adder.run) for adder in adders]
        try:
            wait_for(lambda: all(adder.commits > ENOUGH for adder in adders), "some commits of each")
            with store.nobody_can_write():
                # With adds under way in both, which have decided about keys, or wait for each other's.
                doomed.kill()
            before = [adder.commits for adder in adders]
            survivors = adders[1::2]
            wait_for(lambda: all(each.commits > before[each.number - 1] + ENOUGH for each in survivors), "more commits")
        finally:
            for adder in adders:
                adder.stop.set()
        for ended in running:
            ended.result()
        assert all(adder.added and adder.duplicates for adder in adders)
        adds = [{"group": "mail", "unique": key} for key in KEYS]
        answer = server.ask("POST", "/update", other.token, json={"clientid": 1, "adds": adds}).json()
    with psycopg.connect(store.database_url) as postgresql:
        living: dict[str, int] = dict(postgresql.execute('SELECT "unique", id FROM tasks_app_task').fetchall())
        [(tasks,)] = postgresql.execute("SELECT count(*) FROM tasks_app_task").fetchall()
    assert tasks == len(KEYS)
    assert living == {key: task["id"] for key, task in zip(KEYS, answer["tasks"], strict=True)}
    verified = store.manage("verify")
    assert (verified.returncode, verified.stdout) == (0, "no problems found\n")
