from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from tasks_app.access import tokens
from tasks_app.models import Scope

from .api import Api, Clock

pytestmark = pytest.mark.once

OPEN = {"/healthz", "/readyz", "/schema", "/schema/ui"}
GUARDED = {
    "/groups": "GET", "/group": "GET", "/group/mail": "GET", "/group?name=mail": "GET", "/task/1": "GET",
    "/tasks/1": "GET", "/tasks": "POST", "/history/1": "GET", "/update": "POST", "/claim": "POST",
    "/groups/mail/pause": "POST", "/groups/mail/resume": "POST", "/clients": "GET", "/clients/1": "PUT",
    "/stats": "GET", "/search": "GET", "/export": "GET", "/import": "POST", "/audit": "GET", "/bulk/preview": "POST",
    "/bulk": "POST", "/operations": "GET", "/operations/1": "GET", "/operations/1/items": "GET",
    "/operations/1/cancel": "POST", "/operations/1/undo": "POST",
    "/jobs": "GET", "/jobs?post": "POST", "/jobs/1": "GET", "/jobs/1?delete": "DELETE", "/jobs/1/requeue": "POST",
    "/commands": "GET", "/commands/nightly": "GET", "/commands/nightly?post": "POST", "/commands/nightly/lists": "GET",
    "/commands/nightly/lists/1": "GET", "/commands/nightly/lists/1/reopen": "POST", "/commands/nightly/results": "GET",
    "/commands/nightly/command/1": "GET", "/commands/nightly/retry": "POST", "/commands/nightly/stash": "POST",
    "/commands/nightly/unstash": "POST", "/commands/nightly/archive": "POST",
    "/commands/nightly/export": "GET", "/commands/nightly/import": "POST",
    "/schedules": "GET", "/schedules/digest": "GET", "/schedules/digest?put": "PUT",
    "/schedules/digest?delete": "DELETE", "/schedules/digest/pause": "POST", "/schedules/digest/resume": "POST",
    "/schedules/digest/run": "POST",
    "/metrics": "GET",  # Open on the machine of the server; to these clients it is not one of its names.
}  # fmt: skip

FOR_WORKERS = {"/update", "/claim", "/import", "/clients/1", "/jobs?post", "/jobs/1?delete"}
FOR_OPERATORS = {
    "/groups/mail/pause", "/groups/mail/resume", "/audit", "/bulk/preview", "/bulk",
    "/operations", "/operations/1", "/operations/1/items", "/operations/1/cancel", "/operations/1/undo",
    "/jobs/1/requeue",
    "/schedules/digest?put", "/schedules/digest?delete", "/schedules/digest/pause", "/schedules/digest/resume",
    "/schedules/digest/run",
}  # fmt: skip
FOR_COMMANDS = {
    "/commands/nightly?post", "/commands/nightly/lists/1/reopen", "/commands/nightly/retry", "/commands/nightly/stash",
    "/commands/nightly/unstash", "/commands/nightly/archive", "/commands/nightly/import",
}  # fmt: skip


@pytest.fixture
def clock(monkeypatch):
    """That of the cache."""
    clock = Clock()
    monkeypatch.setattr(tokens, "time", clock)
    return clock


@pytest.mark.parametrize(("path", "method"), GUARDED.items())
@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer  ", "Basic QW5uOnNlY3JldA==", "Bearer ts_nonsense", "ts_nonsense", "Bearer \xff\xfe"],
)
def test_without_a_valid_token_nobody_gets_in(db, path, method, header):
    headers = {} if header is None else {"authorization": header}
    response = Client(headers=headers).generic(method, path)
    assert (response.status_code, response["WWW-Authenticate"]) == (401, "Bearer")
    assert list(response.json()) == ["detail"]


def test_the_scheme_may_be_written_in_any_case(api):
    assert Client(headers={"authorization": f"bearer  {api.secret}"}).get("/groups").status_code == 200


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


def test_every_path_has_a_place_in_this_test():
    from tasks_app.rest_api.urls import urlpatterns

    tested = {path.partition("?")[0].replace("/mail", "/<group_name:name>") for path in {*OPEN, *GUARDED}}
    tested = {
        path.replace("tasks/1", "tasks/<str:ids>")
        .replace("clients/1", "clients/<str:clientid>")
        .replace("/nightly", "/<str:project>")
        .replace("lists/1", "lists/<str:task>")
        .replace("/digest", "/<str:name>")
        .replace("/1", "/<str:id>")
        for path in tested
    }
    assert tested == {f"/{pattern.pattern}" for pattern in urlpatterns}


@pytest.mark.parametrize("path", OPEN)
def test_some_paths_need_no_token(db, path):
    assert Client().get(path).status_code == 200


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize(("path", "method"), GUARDED.items())
def test_a_scope_allows_what_it_says(db, scope, path, method):
    status = Api(scope).http.generic(method, path).status_code
    needs_more = {
        Scope.READ: FOR_WORKERS | FOR_OPERATORS | FOR_COMMANDS,
        Scope.WORK: FOR_OPERATORS | FOR_COMMANDS,
        Scope.OPERATE: FOR_COMMANDS,
        Scope.COMMANDS: FOR_OPERATORS,
    }
    is_forbidden = path in needs_more.get(scope, ())
    assert (status == 403) == is_forbidden


def test_no_other_site_is_told_that_it_may_ask(api):
    response = api.http.get("/groups", headers={"origin": "https://elsewhere.example"})
    preflight = api.http.options("/update", headers={"access-control-request-method": "POST"})
    for answer in (response, preflight):
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
