"""Numbers with more digits than Python reads: each is the mistake of whoever sent it, never a 500."""

import re

import pytest
from django.contrib.auth.models import User
from django.urls import URLResolver, get_resolver

from tasks_app.models import Scope

from ..people import signed_in
from ..rest_api.api import Api

pytestmark = [pytest.mark.once, pytest.mark.django_db]

LONG = "9" * 5_000
FIELDS = [
    "after", "all", "as_of", "at", "before", "bound", "clients", "clientid", "days", "delay", "expected", "group",
    "id", "limit", "list", "max_fails", "min", "name", "offset", "owner", "p", "page", "priority", "project", "q",
    "role", "since", "span", "spread_minutes", "tail", "timeout_s", "until", "wait", "_selected_action", "id__exact",
]  # fmt: skip


def addresses(patterns=None, before="/"):
    for each in get_resolver().url_patterns if patterns is None else patterns:
        if isinstance(each, URLResolver):
            yield from addresses(each.url_patterns, before + str(each.pattern))
        else:
            yield before + str(each.pattern)


PLAIN = sorted({address for address in addresses() if not re.search(r"[\\^$?(]", address)})
NUMBERED = [address for address in PLAIN if "<" in address]


@pytest.fixture
def clients(settings):
    settings.TASKSTORE_COMMANDS = True
    root = signed_in(User.objects.create_superuser("root"))
    made = [root, Api(Scope.OPERATE).http]
    for client in made:
        client.raise_request_exception = False
    return made


@pytest.mark.parametrize("address", NUMBERED)
def test_in_a_path(clients, address):
    path = re.sub(r"<[^>]+>", LONG, address)
    for client in clients:
        assert {client.get(path).status_code, client.post(path).status_code} == {400}


@pytest.mark.parametrize("accept", ["text/html", "application/json"])
def test_it_is_told(clients, accept):
    answer = clients[0].get(f"/console/task/{LONG}", headers={"accept": accept})
    assert answer.headers["Content-Type"].startswith(accept)
    assert "a number with too many digits" in answer.content.decode()


def test_programs_are_told_as_the_api_describes_it(clients):
    told = clients[1].get(f"/group/{LONG}").json()
    assert told == {"detail": told["detail"], "errors": {"path": [told["detail"]]}}


@pytest.mark.parametrize("address", [address for address in PLAIN if "<" not in address and "/docs" not in address])
def test_in_a_query_and_in_a_form(clients, address):
    person, program = clients
    client = person if address.startswith(("/console", "/admin")) else program
    ask(client, address, FIELDS)
    assert client.post(address, dict.fromkeys(FIELDS, LONG)).status_code < 500


def ask(client, address, fields):
    """All of them at once; the halves too if that is refused, as one mistake may hide another."""
    status = client.get(address, {"name": "mail", **dict.fromkeys(fields, LONG)}).status_code
    assert status < 500, fields
    if status == 400 and len(fields) > 1:
        middle = len(fields) // 2
        ask(client, address, fields[:middle])
        ask(client, address, fields[middle:])


@pytest.mark.parametrize(
    "query", ["/group/mail?limit=", "/audit?limit=", "/console/?page=", "/console/group?name=mail&after="]
)
def test_where_a_number_is_asked_for(clients, query):
    person, program = clients
    assert (person if query.startswith("/console") else program).get(query + LONG).status_code == 400
