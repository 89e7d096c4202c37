"""The console on a standby: what only looks is read there, and people are told when that is old."""

import pytest

from .harness import Store, wait_for
from .nodes import viewer

STALE = "it comes from a standby that lags behind"


@pytest.fixture
def place(primary, tmp_path):
    return Store(tmp_path, primary.new_database("store"))


@pytest.fixture
def server(place, standby):
    with place.up(TASKSTORE_REPLICA_URL=standby.url_of("store")) as server:
        yield server


@pytest.fixture
def browser(place, server):
    with viewer(place, server) as browser:
        yield browser


def page(browser):
    answer = browser.get("/console/group?name=mail")
    assert answer.status_code == 200
    return answer.text


def test_a_page_comes_from_the_standby_as_long_as_there_is_one(place, server, standby, browser):
    def add(data):
        asked = {"clientid": 1, "adds": [{"group": "mail", "error": data}]}
        assert server.ask("POST", "/update", place.token, json=asked).json()["error"] is None

    add("first-error")
    wait_for(lambda: "first-error" in page(browser), "the task on the page")
    assert STALE not in page(browser)
    standby.execute("SELECT pg_wal_replay_pause()")
    add("second-error")
    wait_for(lambda: STALE in page(browser), "the page says how old it is")
    assert "second-error" not in page(browser)
    standby.kill()
    wait_for(lambda: "second-error" in page(browser), "the page from the primary")
    assert STALE not in page(browser)


def test_one_that_is_no_standby_is_not_read(place, server, standby, browser):
    standby.execute("SELECT pg_promote()")
    wait_for(lambda: standby.number("SELECT pg_is_in_recovery()::int") == 0, "the promotion")
    asked = {"clientid": 1, "adds": [{"group": "mail", "error": "only-on-the-primary"}]}
    assert server.ask("POST", "/update", place.token, json=asked).json()["error"] is None
    assert "only-on-the-primary" in page(browser)
