"""`manage.py serve`: several processes on one socket and one PostgreSQL."""

import os
import signal
from contextlib import suppress

import httpx
import pytest

from .harness import wait_for


@pytest.fixture
def server(store):
    with store.up(command="serve --workers 2") as server:
        yield server


def instances(server):
    """The processes that answer."""
    return {server.ask("GET", "/healthz").json()["instance"] for _ in range(20)}


def workers_of(server):
    with open(f"/proc/{server.pid}/task/{server.pid}/children") as children:
        return [int(pid) for pid in children.read().split()]


def is_alive(pid):
    with suppress(FileNotFoundError), open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"
    return False


def test_several_processes_answer(server):
    found = set()

    def both_answer():
        found.update(instances(server))
        return len(found) == 2

    wait_for(both_answer, "an answer of each process")


def test_what_one_process_adds_another_one_claims(server, store):
    add, claim = {"clientid": 1, "adds": [{"group": "mail"}] * 40}, {"clientid": 2, "group": "mail"}
    added = server.ask("POST", "/update", store.token, json=add).json()["tasks"]
    claimed = [server.ask("POST", "/claim", store.token, json=claim).json()["tasks"][0] for _ in added]
    assert {task["origin"] for task in claimed} == {task["id"] for task in added}


def test_a_worker_that_dies_is_replaced(server):
    before = workers_of(server)
    os.kill(before[0], signal.SIGKILL)
    wait_for(lambda: len(set(workers_of(server)) - set(before)) == 1, "another worker")
    assert server.ask("GET", "/healthz").status_code == 200
    assert server.end() == 0
    assert server.complaints.count("another one takes its place") == 1


def test_nothing_is_left_when_it_has_ended(server):
    workers = workers_of(server)
    assert len(workers) == 2
    assert server.end() == 0
    assert server.complaints == ""
    assert not any(map(is_alive, workers))


def test_workers_end_when_the_process_that_started_them_was_killed(server):
    workers = workers_of(server)
    os.kill(server.pid, signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, workers)), "the end of the workers")


def test_without_tokens_it_is_the_same(store):
    with store.up("--no-auth", command="serve --workers 2") as server:
        assert server.ask("GET", "/groups").status_code == 200
        foreign = httpx.get(f"{server.url}/groups", headers={"Origin": "https://example.org"}, trust_env=False)
        assert foreign.status_code == 403
