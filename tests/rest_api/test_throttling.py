"""Who asks too often is told when to come again."""

import pytest
from django.test import Client, RequestFactory

from tasks_app.access import request_limits
from tasks_app.access.request_limits import KEPT, Allowance, address_of, network_of
from tasks_app.models import Scope

from .api import ANN, Api, Clock

pytestmark = [pytest.mark.once, pytest.mark.django_db]

UPDATE = {"clientid": ANN, "adds": [{"group": "mail"}]}


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(request_limits, "time", clock)
    return clock


def ask(api: Api, way: str):
    """On the hot path, beside it, and in a view of the thread's."""
    return api.http.get("/groups") if way == "GET" else api.http.post("/update", UPDATE, "application/json")


@pytest.mark.parametrize("way", ["GET", "POST"])
def test_a_token_may_ask_so_often_a_second(settings, clock, way):
    settings.TASKSTORE_TOKEN_RATE = 3
    ann, bob = Api(), Api()
    assert [ask(ann, way).status_code for _ in range(5)] == [200, 200, 200, 429, 429]
    assert ask(bob, way).status_code == 200
    clock.now_s += 0.4  # What a third of a second allows.
    assert [ask(ann, way).status_code for _ in range(2)] == [200, 429]


def test_it_says_in_how_many_seconds(settings, clock):
    settings.TASKSTORE_TOKEN_RATE = 1
    api = Api()
    api.get("/groups")
    answer = api.http.get("/groups")
    assert (answer.status_code, answer["Retry-After"]) == (429, "1")
    assert answer.json() == {"detail": "Too many requests. Try again in 1 s."}
    assert answer["Cache-Control"] == "no-store"


def test_an_address_may_ask_so_often_a_second_whatever_the_token(settings, clock):
    settings.TASKSTORE_ADDRESS_RATE = 2
    ann, bob = Api(), Api()
    assert [ask(api, "GET").status_code for api in (ann, bob, ann)] == [200, 200, 429]
    assert Client().get("/schema").status_code == 429
    assert ann.http.get("/groups", REMOTE_ADDR="192.0.2.1").status_code == 200


@pytest.mark.parametrize("way", ["GET", "POST"])
def test_who_guesses_tokens_is_stopped_before_the_database_is_asked(settings, clock, way, django_assert_num_queries):
    settings.TASKSTORE_WRONG_TOKEN_RATE = 2
    api = Api(Scope.WORK)
    assert ask(api, way).status_code == 200
    guess = Api()
    guess.http = Client(headers={"authorization": "Bearer ts_nonsense"})
    assert [ask(guess, way).status_code for _ in range(2)] == [401, 401]
    with django_assert_num_queries(0):
        assert ask(guess, way).status_code == 429
    assert ask(api, way).status_code == 200  # It is known already.


def test_nothing_is_limited_by_default_but_guesses(clock):
    api = Api()
    assert {api.http.get("/groups").status_code for _ in range(300)} == {200}


def test_it_forgets_those_who_have_waited_long_enough(settings, clock):
    settings.TASKSTORE_SIGN_IN_RATE = 1
    allowance = Allowance("TASKSTORE_SIGN_IN_RATE", 1, 60.0)
    for number in range(KEPT):
        allowance.take(number)
    clock.now_s += 61
    allowance.take("ann")
    assert list(allowance._free_at_s) == ["ann"]


@pytest.mark.parametrize(
    ("proxies", "forwarded", "address"),
    [
        (0, "192.0.2.7", "127.0.0.1"),  # Anybody can write that.
        (1, "192.0.2.7", "192.0.2.7"),
        (1, "10.0.0.1, 192.0.2.7", "192.0.2.7"),
        (2, "10.0.0.1, 192.0.2.7, 192.0.2.8", "192.0.2.7"),
        (2, "192.0.2.7", "127.0.0.1"),
        (1, "<script>", "127.0.0.1"),
        (1, "", "127.0.0.1"),
    ],
)
def test_an_address_is_the_one_beyond_our_own_proxies(settings, proxies, forwarded, address):
    settings.TASKSTORE_PROXIES = proxies
    assert address_of(RequestFactory().get("/", headers={"x-forwarded-for": forwarded})) == address


def test_all_addresses_of_a_household_are_one():
    asked = [RequestFactory().get("/", REMOTE_ADDR=f"2001:db8:1:2::{host}") for host in ("1", "ffff:1")]
    assert {network_of(request) for request in asked} == {"2001:db8:1:2::/64"}
