"""Who may see and do what: each address of the console with each role. A new address without a row fails."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tasks_app.console.urls import urlpatterns
from tasks_app.models import AuditEntry, Task

from ..people import signed_in
from .store import add

# Who may do what is decided before the database is asked for tasks.
pytestmark = [pytest.mark.once, pytest.mark.django_db]

EVERYBODY = {"viewer", "payload viewer", "operator", "admin", "superuser"}
OPERATORS = {"operator", "admin", "superuser"}
PAYLOADS = {"payload viewer", "admin", "superuser"}

# Name of the address: the method, who may, and what is asked.
CALLS = {
    "overview": ("GET", EVERYBODY, {}),
    "group": ("GET", EVERYBODY, {"name": "mail"}),
    "facts": ("GET", EVERYBODY, {"name": "mail"}),
    "attention": ("GET", EVERYBODY, {}),
    "flow": ("GET", EVERYBODY, {"group": "mail"}),
    "rates": ("GET", EVERYBODY, {"span": "1h"}),
    "failed": ("GET", EVERYBODY, {}),
    "workers": ("GET", EVERYBODY, {}),
    "audit": ("GET", OPERATORS, {}),
    "audit_export": ("GET", OPERATORS, {"format": "csv"}),
    "audit_entry": ("GET", OPERATORS, {}),
    "search": ("GET", EVERYBODY, {"q": "group:mail"}),
    "suggestions": ("GET", EVERYBODY, {"q": "group:"}),
    "task": ("GET", EVERYBODY, {}),
    "data": ("GET", PAYLOADS, {}),
    "add": ("POST", OPERATORS, {"group": "mail", "delay": "0", "unit": "seconds", "priority": "0"}),
    "pause": ("POST", OPERATORS, {"name": "mail"}),
    "resume": ("POST", OPERATORS, {"name": "mail"}),
    "edit": ("POST", OPERATORS, {"group": "mail"}),
    "give_back": ("POST", OPERATORS, {}),
    "confirm": ("GET", OPERATORS, {"verb": "purge", "name": "mail", "all": "1"}),
    "requeue": ("POST", OPERATORS, {"name": "mail", "all": "1", "expected": "1"}),
    "move": ("POST", OPERATORS, {"name": "mail", "all": "1", "expected": "1", "to": "reports"}),
    "purge": ("POST", OPERATORS, {"name": "mail", "all": "1", "expected": "1", "typed": "mail"}),
}
# What people need before they have a role; test_signing_in.py is about these.
BEFORE_ROLES = {"login", "logout", "password", "theme"}
CHANGES = {name for name, (method, _, _) in CALLS.items() if method == "POST"} | {"logout", "theme"}


@pytest.fixture
def task() -> Task:
    add("reports")
    return add("mail")[0]


def path_of(name: str, task: Task) -> str:
    [pattern] = [pattern for pattern in urlpatterns if pattern.name == name]
    return "/console/" + str(pattern.pattern).replace("<int:task_id>", str(task.id)).replace("<int:entry_id>", "1")


def call(client: Client, name: str, task: Task, method: str = ""):
    asked_method, _, fields = CALLS[name]
    return getattr(client, (method or asked_method).lower())(path_of(name, task), fields)


def test_it_has_a_row_for_each_address():
    assert {pattern.name for pattern in urlpatterns} == set(CALLS) | BEFORE_ROLES


@pytest.mark.parametrize("name", CALLS)
def test_it_lets_in_who_may_and_nobody_else(roles, name, task):
    _, allowed, _ = CALLS[name]
    refused = {role for role, user in roles.items() if call(signed_in(user), name, task).status_code == 403}
    assert refused == set(roles) - allowed


@pytest.mark.parametrize("name", CALLS)
def test_it_changes_nothing_for_those_who_may_not(roles, name, task):
    _, allowed, _ = CALLS[name]
    for role in set(roles) - allowed:
        call(signed_in(roles[role]), name, task)
    assert set(Task.objects.values_list("group", flat=True)) == {"mail", "reports"}
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("name", CALLS)
def test_it_leads_strangers_to_the_sign_in(client, name, task):
    answer = call(client, name, task)
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/console/login?next=/console/")


@pytest.mark.parametrize("name", CALLS)
def test_it_shuts_out_people_without_a_role_and_people_who_left(name, task):
    nobody = User.objects.create(username="bob")
    assert call(signed_in(nobody), name, task).status_code == 403
    gone = User.objects.create(username="ann", is_active=False, is_superuser=True)
    assert call(signed_in(gone), name, task).status_code == 302


@pytest.mark.parametrize("name", CHANGES - {"add", "pause", "give_back", "edit"})  # Whose GET is the form.
@pytest.mark.parametrize("method", ["get", "head", "put", "delete"])
def test_it_changes_by_post_only(roles, name, method, task):
    answer = getattr(signed_in(roles["superuser"]), method)(path_of(name, task))
    assert answer.status_code == 405
    assert Task.objects.count() == 2


@pytest.mark.parametrize("name", CHANGES | {"login", "password"})
def test_it_changes_nothing_without_the_token_of_the_form(roles, name, task):
    client = Client(enforce_csrf_checks=True)
    client.force_login(roles["superuser"], backend="django.contrib.auth.backends.ModelBackend")
    fields = CALLS[name][2] if name in CALLS else {}
    answer = client.post(path_of(name, task), fields)
    assert answer.status_code == 403
    assert "This form is too old" in answer.content.decode()
    assert Task.objects.count() == 2


def test_it_tells_a_script_to_go_to_the_sign_in(client, task):
    answer = client.get("/console/confirm", CALLS["confirm"][2], headers={"HX-Request-Type": "partial"})
    assert (answer.status_code, answer.headers["HX-Redirect"]) == (204, "/console/login")


def test_it_tells_a_script_in_a_part_of_a_page_that_it_may_not(viewer, task):
    answer = viewer.get("/console/confirm", CALLS["confirm"][2], headers={"HX-Request-Type": "partial"})
    assert answer.status_code == 403
    assert '<h2 id="dialog-title">You may not do this</h2>' in answer.content.decode()
    assert "<html" not in answer.content.decode()


@pytest.mark.parametrize(
    "name", set(CALLS) - {"move", "purge", "requeue", "add", "pause", "resume", "give_back", "edit"}
)
def test_it_keeps_pages_with_data_out_of_every_cache(roles, name, task):
    assert "no-store" in call(signed_in(roles["superuser"]), name, task).headers["Cache-Control"]


@pytest.mark.parametrize("name", set(CALLS) | {"login"})
def test_it_lets_no_page_run_anything_from_elsewhere_or_inline(roles, name, task, client):
    answer = client.get("/console/login") if name == "login" else call(signed_in(roles["superuser"]), name, task)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    page = answer.getvalue().decode()
    assert " style=" not in page
    assert " on" not in [part[:3] for part in page.split("<")]
    assert "<style" not in page
    assert all("src=" in script.split(">")[0] for script in page.split("<script")[1:])
