"""`manage.py serve`: several processes on one socket and one PostgreSQL."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from statistics import median

import httpx
import pytest

from .harness import wait_for

ADD = {"clientid": 1, "adds": [{"group": "mail"}]}
CLAIM = {"clientid": 2, "group": "mail", "wait": 60_000}


@pytest.fixture
def server(store):
    with store.up(command="serve --workers 2") as server:
        yield server


@pytest.fixture(scope="module")
def lasting(tmp_path_factory, copies):
    """A server that no test ends, and its token."""
    with copies(tmp_path_factory.mktemp("lasting")) as store, store.up(command="serve --workers 2") as server:
        yield server, store.token


def instances(server):
    """The processes that answer."""
    return {server.ask("GET", "/healthz").json()["instance"] for _ in range(20)}


def is_alive(pid):
    with suppress(FileNotFoundError), open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"
    return False


def test_several_processes_answer(lasting):
    server, _ = lasting
    found = set()

    def both_answer():
        found.update(instances(server))
        return len(found) == 2

    wait_for(both_answer, "an answer of each process")


def test_what_one_process_adds_another_one_claims(lasting):
    server, token = lasting
    add, claim = {"clientid": 1, "adds": [{"group": "mail"}] * 40}, {"clientid": 2, "group": "mail"}
    added = server.ask("POST", "/update", token, json=add).json()["tasks"]
    claimed = [server.ask("POST", "/claim", token, json=claim).json()["tasks"][0] for _ in added]
    assert {task["origin"] for task in claimed} == {task["id"] for task in added}


def test_a_worker_that_dies_is_replaced(server):
    before = server.workers
    os.kill(before[0], signal.SIGKILL)
    wait_for(lambda: len(set(server.workers) - set(before)) == 1, "another worker")
    assert server.ask("GET", "/healthz").status_code == 200
    assert server.end() == 0
    assert server.complaints.count("starting another one") == 1


def test_nothing_is_left_when_it_has_ended(server):
    workers = server.workers
    assert len(workers) == 2
    assert server.end() == 0
    assert server.complaints == ""
    assert not any(map(is_alive, workers))


def test_a_service_manager_may_tell_all_processes_at_once(store):
    with store.up(command="serve --workers 1", TASKSTORE_DRAIN_SECONDS="20") as server:
        for pid in [*server.workers, server.pid]:
            os.kill(pid, signal.SIGTERM)
        wait_for(lambda: server.ask("GET", "/readyz").status_code == 503, "that it is not ready")
        time.sleep(1)  # By now each has heard of it twice.
        assert server.ask("GET", "/healthz").status_code == 200


def test_workers_end_when_the_process_that_started_them_was_killed(server):
    workers = server.workers
    os.kill(server.pid, signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, workers)), "the end of the workers")


def test_without_tokens_it_is_the_same(store):
    with store.up("--no-auth", command="serve --workers 2") as server:
        assert server.ask("GET", "/groups").status_code == 200
        foreign = httpx.get(f"{server.url}/groups", headers={"Origin": "https://example.org"}, trust_env=False)
        assert foreign.status_code == 403


@pytest.fixture
def two_servers(store):
    with store.up() as first, store.up(command="serve --workers 1") as second:
        yield first, second


def claim_in_time(server, token):
    """A claim that waits, and when it was answered."""
    answer = server.ask("POST", "/claim", token, json=CLAIM)
    return time.monotonic(), answer.json()["tasks"]


def test_a_claim_that_waits_in_another_process_is_woken(two_servers, store):
    first, second = two_servers
    here_s, there_s = [], []
    for _ in range(13):
        here_s.append(until_woken_s(first, first, store.token))
        there_s.append(until_woken_s(first, second, store.token))
    # The first few come before the processes know of each other. The look once a second would take half of one longer
    # than the word within a process.
    assert median(there_s[5:]) < median(here_s[5:]) + 0.25, (here_s, there_s)


def until_woken_s(adding, claiming, token):
    """How long after an add at one server the answer of a claim comes that waits at the same or another one."""
    with ThreadPoolExecutor(1) as thread:
        claim = thread.submit(claim_in_time, claiming, token)
        time.sleep(0.2)  # Until it waits: nobody can tell from outside.
        added_s = time.monotonic()
        [added] = adding.ask("POST", "/update", token, json=ADD).json()["tasks"]
        woken_s, [claimed] = claim.result()
    assert claimed["origin"] == added["id"]
    return woken_s - added_s


def test_resume_wakes_a_claim_that_waits_in_another_process(two_servers, store):
    first, second = two_servers
    assert first.ask("POST", "/groups/mail/pause", store.token, json={}).status_code == 200
    first.ask("POST", "/update", store.token, json=ADD)
    with ThreadPoolExecutor(1) as thread:
        claim = thread.submit(claim_in_time, second, store.token)
        assert first.ask("POST", "/groups/mail/resume", store.token, json={}).status_code == 200
        assert len(claim.result()[1]) == 1
