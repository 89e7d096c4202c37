"""Numbers with more digits than Python reads: each is the mistake of whoever sent it, never a 500."""

import re

import pytest
from django.contrib.auth.models import User
from django.urls import URLResolver, get_resolver

from tasks_app.bulk import Purge, Selection
from tasks_app.models import EndedTask, Scope, Task
from taskstore.types.tasks import NewTask

from ..console.store import change_all
from ..jobs_store.jobs import failed, succeeded
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


# ---- To a token for some groups an id whose task lies in another one looks like an id of which nothing is known


TASKS = [
    ("GET", "/task/{}", None),
    ("GET", "/tasks/{}", None),
    ("POST", "/tasks", '{{"ids": [{}]}}'),
    ("GET", "/history/{}", None),
    ("GET", "/search?q=id:{}", None),
    ("GET", "/jobs/{}", None),
    ("DELETE", "/jobs/{}", None),
    ("POST", "/jobs/{}/requeue", "{{}}"),
    ("GET", "/commands/nightly/lists/{}", None),
    ("GET", "/operations/{}", None),
    ("GET", "/operations/{}/items", None),
    ("POST", "/operations/{}/undo", "{{}}"),
    ("POST", "/operations/{}/cancel", "{{}}"),
    ("POST", "/update", '{{"clientid": 1, "deletes": [{}]}}'),
    ("POST", "/update", '{{"clientid": 1, "updates": [{{"id": {}, "keep": true}}]}}'),
    # What the request says of the group counts for nothing: the stored one does.
    ("POST", "/update", '{{"clientid": 1, "updates": [{{"id": {}, "group": "mail"}}]}}'),
    ("POST", "/update", '{{"clientid": 1, "adds": [{{"group": "mail"}}], "depends": [{}]}}'),
    ("POST", "/claim", '{{"clientid": 1, "group": "mail", "depends": [{}]}}'),
    ("POST", "/bulk/preview", '{{"verb": "purge", "ids": [{}]}}'),
]


@pytest.fixture
def foreign() -> dict[str, int]:
    """Ids that exist: of a task that anybody may take, of one that is leased, of one that has ended, of others."""
    new = [NewTask(group="payroll"), NewTask(group="payroll", timespec_ms=-60_000), NewTask(group="payroll")]
    ready, leased, gone = Task.objects.commit(owner=2, adds=new)
    Task.objects.commit(owner=2, deletes=[gone.id])
    done, broken = succeeded(queue="payroll"), failed(queue="payroll")
    [purged] = Task.objects.commit(owner=2, adds=[NewTask(group="wages")])
    operation = change_all(Purge, Selection(group="wages"), typed="wages")
    jobs = {"done": done, "broken": broken}
    return {
        "ready": ready.id,
        "leased": leased.id,
        "gone": gone.id,
        "purged": purged.id,
        **jobs,
        "operation": operation.id,
    }


@pytest.fixture
def unknown() -> int:
    """An id that was given out in a group of the token's own, so long ago that its trail is gone."""
    [task] = Task.objects.commit(owner=2, adds=[NewTask(group="mail")])
    Task.objects.commit(owner=2, deletes=[task.id])
    EndedTask.objects.all().delete()
    return task.id


@pytest.mark.parametrize(("method", "path", "body"), TASKS)
@pytest.mark.parametrize("scope", [Scope.OPERATE, Scope.COMMANDS])
def test_it_looks_like_one_of_which_nothing_is_known(unknown, foreign, scope, method, path, body):
    api = Api(scope, ("mail", "pay", "wage/*"))
    before = list(Task.objects.order_by("id").values())
    expected = answer_about(api, unknown, method, path, body)
    for kind, number in foreign.items():
        assert answer_about(api, number, method, path, body) == expected, kind
    assert list(Task.objects.order_by("id").values()) == before


def answer_about(api, number, method, path, body):
    """With the number written as a star."""
    answer = api.http.generic(method, path.format(number), body.format(number) if body else b"", "application/json")
    # When it was asked is another moment each time.
    text = re.sub(r'"(took_ms|as_of|at|bound)":\d+', r'"\1":0', answer.getvalue().decode())
    # An id may be as large as the number of days.
    return answer.status_code, re.sub(rf"\b{number}\b(?! days)", "*", text)
