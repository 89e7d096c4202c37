"""A PostgreSQL that goes away and comes back: what is answered, what the log says, and how soon all is well.

A server that is stopped for a while is away, too.
"""

import os
import re
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from lab.testing import NO_TLS

from .harness import Store, wait_for
from .nodes import viewer

ADD = {"clientid": 1, "adds": [{"group": "mail"}]}
BROWSER = {"Accept": "text/html"}
REQUESTS = 12  # Each on a connection of its own, so that they reach both processes.
# Were it psycopg's own pool that tried again, it would do so after an hour.
PATIENT_POOL = """
from psycopg_pool.base import AttemptWithBackoff
AttemptWithBackoff.INITIAL_DELAY = 3600.0
"""


@pytest.fixture
def place(primary, tmp_path):
    return Store(tmp_path, primary.new_database(f"store_{tmp_path.name.replace('-', '_')}"[:60].lower()))


@pytest.fixture
def patient_pool(tmp_path):
    """Variables with which psycopg's own back-off is as long as after an outage of an hour."""
    folder = tmp_path / "patient"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(PATIENT_POOL)
    return {"PYTHONPATH": str(folder)}


@pytest.mark.parametrize("command", ["up", "serve --workers 2"])
def test_it_serves_as_soon_as_the_database_does_and_its_log_says_so(place, primary, patient_pool, command):
    processes = 2 if "2" in command else 1
    with place.up(command=command, **patient_pool) as server, viewer(place, server) as visitor:
        token = place.token
        answers = [server.ask("GET", "/groups", token) for _ in range(REQUESTS)]
        assert {answer.status_code for answer in answers} == {200}
        primary.kill()
        meanwhile = [ask(server, token) for ask in (groups, add, ready, console, admin) for _ in range(4)]
        assert Counter(answer.status_code for answer in meanwhile) == {503: len(meanwhile)}
        assert all("Retry-After" in answer.headers for answer in meanwhile)
        # Whether somebody is signed in or not, the documentation needs no database.
        assert {visitor.get(path).status_code for path in ("/docs/", "/docs/rest/") for _ in range(4)} == {200}
        assert server.ask("GET", "/docs/").status_code == 200
        time.sleep(1.5)  # Longer than any pool waits before its second try.
        primary.start()
        began_s = time.monotonic()
        wait_for(lambda: all(groups(server, token).status_code == 200 for _ in range(REQUESTS)), "it serves again")
        assert time.monotonic() - began_s < 30
        assert {add(server, token).status_code for _ in range(REQUESTS)} == {200}
        wait_for(
            lambda: "".join(server._complaints).count("the database is back") == processes, "the logs of all say so"
        )
        server.end()
    assert len(re.findall("requests fail with 503", server.complaints)) == processes
    assert len(re.findall(r"the database is back after \d+\.\d s", server.complaints)) == processes
    # The other lines are of the visitor's sign-in.
    others = [line for line in server.complaints.splitlines() if "tasks_app.console.sign_in" not in line]
    assert len(others) == 2 * processes, server.complaints


def test_who_waits_for_tasks_leaves_time_to_renew_and_is_told_of_an_outage(place, primary):
    """A lease ends while the database is away, and claims of other workers wait."""
    with place.up() as server, ThreadPoolExecutor() as threads:
        token = place.token
        [added] = add(server, token).json()["tasks"]
        [held] = claim(server, token, 1, duration=1_500).json()["tasks"]
        long, short = (threads.submit(claim, server, token, 2, duration=60_000, wait=wait) for wait in (8_000, 2_500))
        time.sleep(0.5)
        primary.kill()
        assert short.result().status_code == 503
        primary.start()
        renewal = {"clientid": 1, "updates": [{"id": held["id"], "timespec": -60_000}]}
        wait_for(lambda: groups(server, token).status_code == 200, "it serves again")
        time.sleep(1.2)
        assert server.ask("POST", "/update", token, json=renewal).json()["tasks"]
        assert [task["id"] for task in long.result().json()["tasks"]] == []
        [task] = server.ask("GET", "/group?name=mail&owned=true", token).json()
        assert (task["origin"], task["claims"]) == (added["id"], 1)


def test_after_a_process_was_stopped_renewals_come_before_claims(store, command):
    """Both those that waited before and those that have arrived since."""
    with store.up(command=command) as server, ThreadPoolExecutor() as threads:
        token = store.token
        add(server, token)
        [held] = claim(server, token, 1, duration=1_500).json()["tasks"]
        waits = threads.submit(claim, server, token, 2, duration=60_000, wait=5_000)
        time.sleep(0.3)
        tell_all(server, signal.SIGSTOP)
        asks = threads.submit(claim, server, token, 3, duration=60_000)
        time.sleep(2.5)
        renewal = {"clientid": 1, "updates": [{"id": held["id"], "timespec": -60_000}]}
        renews = threads.submit(server.ask, "POST", "/update", token, json=renewal)
        time.sleep(0.3)
        tell_all(server, signal.SIGCONT)
        assert renews.result().json()["tasks"]
        assert [asked.result().json()["tasks"] for asked in (asks, waits)] == [[], []]


def tell_all(server, number):
    for pid in (server.pid, *server.workers):
        os.kill(pid, number)


def claim(server, token, client, **options):
    return server.ask("POST", "/claim", token, json={"clientid": client, "group": "mail", **options})


def groups(server, token):
    return server.ask("GET", "/groups", token)


def add(server, token):
    return server.ask("POST", "/update", token, json=ADD)


def ready(server, token):
    return server.ask("GET", "/readyz")


def console(server, token):
    return httpx.get(f"{server.url}/console/login", headers=BROWSER, timeout=60, trust_env=False, verify=NO_TLS)


def admin(server, token):
    return httpx.get(
        f"{server.url}/admin/", headers=BROWSER, timeout=60, trust_env=False, verify=NO_TLS, follow_redirects=True
    )


def test_a_standby_that_is_asked_before_it_is_promoted_is_an_outage_too(primary, standby, tmp_path):
    """As a proxy does that finds the new primary late. An unlogged table can't even be read there."""
    place = Store(tmp_path, primary.new_database("store"))
    hosts = f"postgresql://postgres@/store?host={primary.folder},{standby.folder}&target_session_attrs=any"
    with place.up(DATABASE_URL=hosts) as server:
        token = place.token
        assert add(server, token).status_code == 200
        wait_for(lambda: standby.number("SELECT count(*) FROM tasks_app_task", "store") == 1, "the standby has it")
        primary.kill()
        wait_for(lambda: groups(server, token).status_code == 200, "it reads from the standby")
        answers = [add(server, token) for _ in range(5)]
        answers += [server.ask("POST", "/groups/mail/pause", token, json={}) for _ in range(2)]
        assert {answer.status_code for answer in answers} == {503}
        assert {answer.json()["code"] for answer in answers} == {"unavailable"}
        assert "read-only or a standby" in answers[0].json()["detail"]
        unready = ready(server, token)
        assert unready.status_code == 503
        assert "read-only or a standby" in unready.json()["detail"]
        standby.execute("SELECT pg_promote()")
        wait_for(lambda: add(server, token).status_code == 200, "a commit on the new primary")
        wait_for(lambda: ready(server, token).status_code == 200, "that it is ready")
