"""What a server answers when its PostgreSQL changes its mind about what it is."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from lab.testing import PROJECT
from lab.testing.environment import clean_environment

from .clusters import cluster, configure, give_up_on_standby
from .harness import Store, wait_for

ADD = {"clientid": 1, "adds": [{"group": "mail"}]}
NOBODY_FOLLOWS = "SET synchronous_standby_names = 'nobody'"
# Without a server beside it, on Django's own connection.
COMMIT_ALONE = """
import django
django.setup()
from taskstore.errors import CommitUnknown
from tasks_app.models import Task
from taskstore.types.tasks import NewTask
try:
    Task.objects.commit(owner=1, adds=[NewTask(group="mail")])
except CommitUnknown as problem:
    print(problem)
"""


@pytest.fixture(scope="module")
def postgresql():
    with cluster() as started:
        yield started


@pytest.fixture
def place(postgresql, tmp_path):
    database = f"store_{tmp_path.name.replace('-', '_')}"[:60].lower()
    yield Store(tmp_path, postgresql.new_database(database))
    configure(postgresql, "RESET ALL")


def test_a_cancelled_wait_for_a_standby_is_no_success(place, postgresql):
    with place.up() as server, ThreadPoolExecutor(1) as thread:
        token = place.token
        configure(postgresql, NOBODY_FOLLOWS)
        asked = thread.submit(server.ask, "POST", "/update", token, json=ADD)
        give_up_on_standby(postgresql)
        answer = asked.result()
        assert (answer.status_code, answer.json()["code"]) == (503, "commit_unknown")
        configure(postgresql, "RESET ALL")
        wait_for(lambda: server.ask("POST", "/update", token, json=ADD).status_code == 200, "a commit afterwards")


def test_a_standby_that_stays_away_is_waited_for_by_no_request_for_ever(place, postgresql):
    with place.up() as server:
        token = place.token
        configure(postgresql, NOBODY_FOLLOWS)
        # Also notes that the token was used.
        assert server.ask("GET", "/groups", token).status_code == 200
        answer = server.ask("POST", "/update", token, json=ADD)
        assert (answer.status_code, answer.json()["code"]) == (503, "commit_unknown")


def test_nor_is_it_one_for_code_without_a_server(place, postgresql):
    with place.up() as server:
        server.end()
    configure(postgresql, NOBODY_FOLLOWS)
    environment = {**clean_environment(place.folder), "DATABASE_URL": place.database_url, "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", COMMIT_ALONE]
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)
    give_up_on_standby(postgresql)
    said, _ = process.communicate()
    assert "did not confirm the COMMIT" in said


@pytest.mark.parametrize("command", ["up", "serve --workers 1"])
def test_a_primary_that_takes_no_more_changes_is_left_until_there_is_one_that_does(place, postgresql, command):
    with place.up(command=command) as server:
        token = place.token
        assert server.ask("POST", "/update", token, json=ADD).status_code == 200
        configure(postgresql, "SET default_transaction_read_only = on")
        answers = []

        def is_refused():
            answers.append(server.ask("POST", "/update", token, json=ADD))
            return answers[-1].status_code == 503

        wait_for(is_refused, "an answer that it takes no changes")
        assert {answer.status_code for answer in answers} <= {200, 503}
        assert answers[-1].json()["code"] == "unavailable"
        assert answers[-1].headers["Retry-After"] == "1"
        for _ in range(5):  # However often it is tried: never a 500.
            assert server.ask("POST", "/update", token, json=ADD).status_code == 503
        # What writes without the writer, too.
        assert server.ask("POST", "/groups/mail/pause", token, json={}).status_code == 503
        assert server.ask("PUT", "/clients/1", token, json={"name": "ann"}).status_code == 503
        configure(postgresql, "RESET ALL")
        wait_for(lambda: server.ask("POST", "/update", token, json=ADD).status_code == 200, "a commit afterwards")
