from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import resolve
from django.utils import timezone

from tasks_app.access import tokens
from tasks_app.access.policy import Action
from tasks_app.models import Scope
from tasks_app.rest_api.urls import VIEWS
from taskstore.endpoints import ENDPOINTS

from .api import Api, Clock

pytestmark = pytest.mark.once

# A value for each parameter of a path.
EXAMPLES = {"name": "mail", "id": "1", "ids": "1", "clientid": "1", "project": "nightly", "task": "1"}
OPEN = [endpoint.path for endpoint in ENDPOINTS if endpoint.needs is None] + ["/schema/ui"]
# One of them is open on the machine of the server; to these clients it is not one of its names.
GUARDED = {
    endpoint.name: (endpoint.method, endpoint.path.format(**EXAMPLES)) for endpoint in ENDPOINTS if endpoint.needs
}


# The smallest scope that each endpoint needs (contract.md sections 3, 4 and 7), written by hand: a changed, missing or
# extra row of the endpoint table fails until somebody has changed it here as well.
NEEDED = {
    # Open to everybody.
    "GET /healthz": None,
    "GET /readyz": None,
    "GET /schema": None,
    # Looking.
    "GET /groups": "read",
    "GET /stats": "read",
    "GET /group/{name}": "read",
    "GET /group": "read",
    "GET /task/{id}": "read",
    "GET /tasks/{ids}": "read",
    "POST /tasks": "read",
    "GET /history/{id}": "read",
    "GET /search": "read",
    "GET /export": "read",
    "GET /clients": "read",
    "GET /cancelled": "read",
    "GET /jobs": "read",
    "GET /jobs/{id}": "read",
    "GET /commands": "read",
    "GET /commands/{project}": "read",
    "GET /commands/{project}/lists": "read",
    "GET /commands/{project}/lists/{task}": "read",
    "GET /commands/{project}/results": "read",
    "GET /commands/{project}/command/{id}": "read",
    "GET /limits": "read",
    "GET /batches": "read",
    "GET /batches/{id}": "read",
    "GET /groups/{name}/limits": "read",
    "GET /schedules": "read",
    "GET /schedules/{name}": "read",
    "GET /metrics": "read",
    # What workers and the programs that give them work do.
    "POST /update": "work",
    "POST /claim": "work",
    "POST /import": "work",
    "POST /cancel": "work",
    "POST /batches": "work",
    "POST /batches/{id}/release": "work",
    "POST /batches/{id}/complete": "operate",
    "PUT /clients/{clientid}": "work",
    "PUT /progress/{id}": "work",
    "POST /jobs": "work",
    "DELETE /jobs/{id}": "work",
    # What operators do.
    "PUT /groups/{name}/limits": "operate",
    "DELETE /groups/{name}/limits": "operate",
    "DELETE /batches/{id}": "operate",
    "POST /groups/{name}/pause": "operate",
    "POST /groups/{name}/resume": "operate",
    "POST /jobs/{id}/requeue": "operate",
    "PUT /schedules/{name}": "operate",
    "DELETE /schedules/{name}": "operate",
    "POST /schedules/{name}/pause": "operate",
    "POST /schedules/{name}/resume": "operate",
    "POST /schedules/{name}/run": "operate",
    "GET /audit": "operate",
    "POST /bulk/preview": "operate",
    "POST /bulk": "operate",
    "GET /operations": "operate",
    "GET /operations/{id}": "operate",
    "GET /operations/{id}/items": "operate",
    "POST /operations/{id}/cancel": "operate",
    "POST /operations/{id}/undo": "operate",
    # Whatever decides what shells run.
    "POST /commands/{project}": "commands",
    "POST /commands/{project}/lists/{task}/reopen": "commands",
    "POST /commands/{project}/retry": "commands",
    "POST /commands/{project}/cancel": "commands",
    "POST /commands/{project}/stash": "commands",
    "POST /commands/{project}/unstash": "commands",
    "POST /commands/{project}/archive": "commands",
}
# The scopes that include each one: read < work < operate, and commands beside operate.
INCLUDED_IN = {
    "read": {"read", "work", "operate", "commands"},
    "work": {"work", "operate", "commands"},
    "operate": {"operate"},
    "commands": {"commands"},
}


@pytest.fixture
def clock(monkeypatch):
    """That of the cache."""
    clock = Clock()
    monkeypatch.setattr(tokens, "time", clock)
    return clock


@pytest.mark.parametrize(("method", "path"), GUARDED.values(), ids=GUARDED)
@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer  ", "Basic QW5uOnNlY3JldA==", "Bearer ts_nonsense", "ts_nonsense", "Bearer \xff\xfe"],
)
def test_without_a_valid_token_nobody_gets_in(db, method, path, header):
    headers = {} if header is None else {"authorization": header}
    response = Client(headers=headers).generic(method, path)
    assert (response.status_code, response["WWW-Authenticate"]) == (401, "Bearer")
    assert list(response.json()) == ["detail"]


def test_a_session_opens_nothing(db):
    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    assert client.get("/groups").status_code == 401
    assert client.post("/update").status_code == 401


def test_a_token_beside_a_session_needs_no_csrf_token(api):
    client = Client(enforce_csrf_checks=True, headers={"authorization": f"Bearer {api.secret}"})
    client.force_login(User.objects.create_superuser("ann"))
    body = {"clientid": 1, "adds": [{"group": "mail"}]}
    assert client.post("/update", body, content_type="application/json").status_code == 200


def test_a_revoked_token_opens_nothing_after_five_seconds(api, clock):
    assert api.get("/groups")[0] == 200
    tokens.revoke(api.token)
    clock.now_s += 5.1
    assert api.get("/groups")[0] == 401


def test_a_valid_token_is_not_looked_up_for_each_request(api, clock, django_assert_num_queries):
    assert api.get("/groups")[0] == 200
    clock.now_s += 4.9
    with django_assert_num_queries(1):
        assert api.get("/groups")[0] == 200


def test_a_token_expires_to_the_moment(db, clock):
    api = Api()
    api.token.expires_at = timezone.now() + timedelta(hours=1)
    api.token.save()
    assert api.get("/groups")[0] == 200
    cached, _ = tokens._trusted[api.secret]
    cached.expires_at = timezone.now()
    api.token.expires_at = timezone.now()
    api.token.save()
    assert api.get("/groups")[0] == 401


def test_every_endpoint_has_a_view_and_every_view_an_endpoint():
    served = [each for view in VIEWS for each in view.rows.values()]
    assert sorted(each.name for each in served) == sorted(each.name for each in ENDPOINTS)
    for endpoint in ENDPOINTS:
        view = resolve(endpoint.path.format(**EXAMPLES)).func.cls  # type: ignore[attr-defined]
        assert view.rows[endpoint.method] is endpoint


def test_every_endpoint_is_in_the_list_of_scopes():
    assert {f"{each.method} {each.path}" for each in ENDPOINTS} == NEEDED.keys()
    assert {f"{each.method} {each.path}" for each in ENDPOINTS if each.needs is None} == {
        name for name, needed in NEEDED.items() if needed is None
    }


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize(("name", "needed"), [(name, needed) for name, needed in NEEDED.items() if needed])
def test_a_scope_allows_what_it_says(db, scope, name, needed):
    method, path = name.split(" ")
    status = Api(scope).http.generic(method, path.format(**EXAMPLES)).status_code
    assert (status != 403) == (scope in INCLUDED_IN[needed])


def test_what_only_looks_is_a_get_and_what_changes_something_is_not():
    looks = {None, Action.SEE, Action.SEE_PAYLOADS}
    by_body = {"tasks_by_body"}
    for_operators = {"audit", "operations", "operation", "operation_items"}
    for endpoint in ENDPOINTS:
        if endpoint.name not in by_body | for_operators:
            assert (endpoint.method == "GET") == (endpoint.needs in looks), endpoint.name


def test_a_method_that_a_path_lacks_is_refused_to_any_token(api):
    assert api.http.put("/claim").status_code == 405
    assert Api(Scope.READ).http.put("/claim").status_code == 405
    assert Client().put("/claim").status_code == 401


def test_no_other_site_is_told_that_it_may_ask(api):
    response = api.http.get("/groups", headers={"origin": "https://elsewhere.example"})
    preflight = api.http.options("/update", headers={"access-control-request-method": "POST"})
    for answer in (response, preflight):
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
