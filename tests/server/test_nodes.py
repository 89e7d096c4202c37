"""Several servers on one PostgreSQL, each on a machine of its own as far as they know."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from taskstore import Client
from tests.behaviour.databases import only_postgresql

from .harness import free_port, wait_for
from .nodes import answering, node, proxy, viewer, wait_for_answer_of

pytestmark = only_postgresql

SERVE = "serve --workers 2"
DRAIN_S = 3


@pytest.fixture
def other(store, tmp_path):
    return node(tmp_path, store.database_url, "other")


@pytest.fixture
def secret(store):
    return store.manage("token", "create", "mailer", "--scope", "operate").stdout.strip()


def cycles(url, secret, number, stop):
    """How many tasks one client has added, claimed and deleted until it was stopped."""
    done = 0
    with Client(url, token=secret, client_id=number) as client:
        while not stop.is_set():
            client.add(f"mail/{number}", b"1")
            [task] = client.claim(f"mail/{number}")
            client.delete(task)
            done += 1
            stop.wait(0.02)
    return done


def wait_long(url, secret, stop):
    """A claim that finds nothing, again and again."""
    with Client(url, token=secret, client_id=99) as client:
        while not stop.is_set():
            assert client.claim("nobody/fills/this", wait_ms=5_000) == []


def restarted(place, port, before, front):
    """Its successor, once the proxy sends requests there."""
    assert before.end() == 0
    # A sign-in is told there, too.
    assert [line for line in before.complaints.splitlines() if "sign in:" not in line] == []
    before.kill()  # Closes what it was heard by.
    server = place.start("--port", str(port), command=SERVE, TASKSTORE_DRAIN_SECONDS=str(DRAIN_S))
    server.wait_until_ready()
    wait_for_answer_of(answering(server), front)
    return server


def test_all_servers_are_restarted_one_after_the_other_and_no_client_notices(store, other, secret, tmp_path):
    places, ports = (store, other), (free_port(), free_port())
    servers = [
        place.start("--port", str(port), command=SERVE, TASKSTORE_DRAIN_SECONDS=str(DRAIN_S))
        for place, port in zip(places, ports, strict=True)
    ]
    stop = threading.Event()
    try:
        for server in servers:
            server.wait_until_ready()
        with proxy(tmp_path, ports) as front, ThreadPoolExecutor(5) as threads:
            wait_for(lambda: front.ask("GET", "/readyz").status_code == 200, "an answer through the proxy")
            working = [threads.submit(cycles, front.url, secret, number, stop) for number in range(1, 5)]
            waiting = threads.submit(wait_long, front.url, secret, stop)
            try:
                for number, place in enumerate(places):
                    servers[number] = restarted(place, ports[number], servers[number], front)
            finally:
                stop.set()
            assert all(done.result() > 0 for done in working)
            waiting.result()
            assert front.ask("GET", "/groups", secret).json() == []
    finally:
        for server in servers:
            server.kill()


@pytest.fixture
def two(store, other):
    with store.up(command=SERVE) as first, other.up(command=SERVE) as second:
        yield first, second


def unfolded(store):
    """How many rows of counts wait for the one process that folds them."""
    with psycopg.connect(store.database_url) as postgresql:
        [(rows,)] = postgresql.execute("SELECT count(*) FROM tasks_app_countdelta").fetchall()
        return rows


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_another_server_keeps_house_when_one_is_gone(two, store, secret, how):
    first, second = two
    processes = [first.pid, *first.workers]
    try:
        for pid in processes:
            os.kill(pid, how)
        add = {"clientid": 1, "adds": [{"group": "mail"}]}
        assert second.ask("POST", "/update", secret, json=add).json()["error"] is None
        wait_for(lambda: unfolded(store) == 0, "the counts are folded")
    finally:
        if how == signal.SIGSTOP:
            for pid in processes:
                os.kill(pid, signal.SIGCONT)


def test_what_is_taken_away_on_one_server_is_gone_on_the_other(two, store, secret):
    first, second = two
    operator = store.token
    add, claim = {"clientid": 1, "adds": [{"group": "mail"}]}, {"clientid": 2, "group": "mail"}
    assert second.ask("POST", "/update", secret, json=add).json()["error"] is None
    assert first.ask("POST", "/groups/mail/pause", operator, json={}).status_code == 200
    assert second.ask("POST", "/claim", secret, json=claim).json()["tasks"] == []
    assert first.ask("POST", "/groups/mail/resume", operator, json={}).status_code == 200
    assert len(second.ask("POST", "/claim", secret, json=claim).json()["tasks"]) == 1
    assert store.manage("token", "revoke", "mailer").returncode == 0
    wait_for(lambda: second.ask("GET", "/groups", secret).status_code == 401, "the token opens nothing any more")


def test_who_signed_in_on_one_server_is_known_on_the_other(store, other, tmp_path):
    key = tmp_path / "key"
    key.write_text("k" * 50)
    shared = {"command": SERVE, "TASKSTORE_SECRET_KEY_FILE": str(key)}
    with store.up(**shared) as first, other.up(**shared) as second, viewer(store, first) as browser:
        assert browser.get(f"{second.url}/console/").status_code == 200
        assert browser.get(f"{first.url}/console/").status_code == 200
