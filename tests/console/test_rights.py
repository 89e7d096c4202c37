"""Who may see and do what: each address of the console with each role. A new address without a row fails."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tasks_app import schedules
from tasks_app.access import tokens
from tasks_app.access.policy import Action, may
from tasks_app.console.urls import urlpatterns
from tasks_app.models import AuditEntry, Batch, BulkOperation, EndedTask, Scope, Task, Token
from tasks_app.models import Client as Worker
from tasks_app.reading import clients

from ..jobs_store.jobs import succeeded
from ..people import ADMINISTRATORS, EVERYBODY, OPERATORS, PAYLOADS, SUBMITTERS, make_user, signed_in
from .commands import completed, running_list
from .store import AGREED, add

# Who may do what is decided before the database is asked for tasks.
pytestmark = [pytest.mark.once, pytest.mark.django_db, pytest.mark.usefixtures("quick_hashes")]

SCHEDULE = {"cron": "@daily", "zone": "UTC", "catch_up": "skip", "adds": "task", "group": "mail"}
COMMANDS = {"project": "default", "all": "1", "expected": "1"}
# Name of the address: the method, who may, and what is asked.
CALLS = {
    "overview": ("GET", EVERYBODY, {}),
    "group": ("GET", EVERYBODY, {"name": "mail"}),
    "facts": ("GET", EVERYBODY, {"name": "mail"}),
    "attention": ("GET", EVERYBODY, {}),
    "flow": ("GET", EVERYBODY, {"group": "mail"}),
    "rates": ("GET", EVERYBODY, {"span": "1h"}),
    "group_limits": ("GET", EVERYBODY, {}),
    "group_limit": ("GET", EVERYBODY, {"name": "reports"}),
    "set_limit": ("POST", OPERATORS, {"name": "mail", "running": "1"}),
    "remove_limit": ("POST", OPERATORS, {"name": "reports"}),
    "batches": ("GET", EVERYBODY, {}),
    "batch": ("GET", EVERYBODY, {}),
    "release_batch": ("POST", OPERATORS, {}),
    "complete_batch": ("POST", OPERATORS, {}),
    "delete_batch": ("POST", OPERATORS, {}),
    "failed": ("GET", EVERYBODY, {}),
    "jobs": ("GET", EVERYBODY, {}),
    "job": ("GET", EVERYBODY, {}),
    "job_times": ("GET", EVERYBODY, {}),
    "add_job": ("POST", OPERATORS, {"function": "mail.send"}),
    "requeue_job": ("POST", OPERATORS, {"args": "[]", "kwargs": "{}", "confirmed": "1"}),
    "delete_job": ("POST", OPERATORS, {}),
    "commands": ("GET", EVERYBODY, {}),
    "command_project": ("GET", EVERYBODY, {"project": "default"}),
    "command_list": ("GET", EVERYBODY, {}),
    "command": ("GET", EVERYBODY, {"project": "default", "id": "2_0"}),
    "command_output": ("GET", PAYLOADS, {"project": "default", "id": "2_0", "stream": "out"}),
    "submit_commands": ("POST", SUBMITTERS, {"project": "default", "lines": "true"}),
    "reopen_list": ("POST", SUBMITTERS, {}),
    "cancel_command": ("POST", SUBMITTERS, {"project": "default", "id": "1_0"}),
    "confirm_commands": ("GET", SUBMITTERS, {"verb": "archive", **COMMANDS}),
    "retry_commands": ("POST", SUBMITTERS, COMMANDS),
    "stash_commands": ("POST", SUBMITTERS, COMMANDS),
    "unstash_commands": ("POST", SUBMITTERS, COMMANDS),
    "archive_commands": ("POST", SUBMITTERS, COMMANDS),
    "schedule": ("GET", EVERYBODY, {}),
    "workers": ("GET", EVERYBODY, {}),
    "worker": ("GET", EVERYBODY, {}),
    "audit": ("GET", OPERATORS, {}),
    "audit_export": ("GET", OPERATORS, {"format": "csv"}),
    "audit_entry": ("GET", OPERATORS, {}),
    "search": ("GET", EVERYBODY, {"q": "group:mail"}),
    "export": ("GET", EVERYBODY, {"q": "group:mail", "format": "csv"}),
    "save_search": ("POST", EVERYBODY, {"name": "own", "q": "group:mail"}),
    "rename_search": ("POST", EVERYBODY, {"name": "own"}),
    "delete_search": ("POST", EVERYBODY, {}),
    "suggestions": ("GET", EVERYBODY, {"q": "group:"}),
    "schedules": ("GET", EVERYBODY, {}),
    "schedule_times": ("GET", EVERYBODY, {"cron": "@daily", "zone": "UTC"}),
    "operations": ("GET", EVERYBODY, {}),
    "operation": ("GET", EVERYBODY, {}),
    "mine": ("GET", EVERYBODY, {}),
    "task": ("GET", EVERYBODY, {}),
    "data": ("GET", PAYLOADS, {}),
    "add": ("POST", OPERATORS, {"group": "mail", "delay": "0", "unit": "seconds", "priority": "0"}),
    "import": ("POST", OPERATORS, {"text": '{"group": "mail"}'}),
    "pause": ("POST", OPERATORS, {"name": "mail"}),
    "resume": ("POST", OPERATORS, {"name": "mail"}),
    "edit": ("POST", OPERATORS, {"group": "mail"}),
    "give_back": ("POST", OPERATORS, {}),
    "cancel_task": ("POST", OPERATORS, {}),
    "confirm": ("GET", OPERATORS, {"verb": "purge", "name": "mail", "all": "1"}),
    **{
        f"{verb}_many": ("POST", OPERATORS, {"name": "mail", "all": "1", "expected": "1", **fields})
        for verb, fields in AGREED.items()
    },
    "cancel": ("POST", OPERATORS, {}),
    "undo": ("POST", OPERATORS, {}),
    "add_schedule": ("POST", OPERATORS, {"name": "digest", **SCHEDULE}),
    "edit_schedule": ("POST", OPERATORS, SCHEDULE),
    "pause_schedule": ("POST", OPERATORS, {}),
    "resume_schedule": ("POST", OPERATORS, {}),
    "run_schedule": ("POST", OPERATORS, {}),
    "delete_schedule": ("POST", OPERATORS, {}),
    "settings": ("GET", ADMINISTRATORS, {}),
    "add_token": ("POST", ADMINISTRATORS, {"name": "reporter", "scope": "read"}),
    "revoke_token": ("POST", ADMINISTRATORS, {}),
    "people": ("GET", ADMINISTRATORS, {}),
    "add_person": ("POST", ADMINISTRATORS, {"name": "lou"}),
    "person": ("POST", ADMINISTRATORS, {"role": "admin"}),
    "close_account": ("POST", ADMINISTRATORS, {}),
    "open_account": ("POST", ADMINISTRATORS, {}),
    "reset_password": ("POST", ADMINISTRATORS, {}),
    "sign_out_person": ("POST", ADMINISTRATORS, {}),
    "limits": ("GET", ADMINISTRATORS, {}),
}
GROUPS = {
    "mail", "reports", "schedules", "jobs/mail/succeeded", "commands/default/open", "commands/default/completed",
}  # fmt: skip
# What people need before they have a role; test_signing_in.py is about these. And what is a websocket's.
BEFORE_ROLES = {"login", "logout", "logout_everywhere", "password", "theme", "live"}
CHANGES = {name for name, (method, _, _) in CALLS.items() if method == "POST"} | {
    "logout",
    "logout_everywhere",
    "theme",
}
# Whose GET is the form, or the question.
ASKS_FIRST = {
    "add", "add_job", "import", "pause", "give_back", "cancel_task", "edit", "requeue_job", "delete_job", "add_token",
    "revoke_token", "add_person", "person", "close_account", "open_account", "reset_password", "sign_out_person",
    "add_schedule", "edit_schedule", "pause_schedule", "run_schedule", "delete_schedule", "submit_commands",
    "reopen_list", "cancel_command", "set_limit", "remove_limit", "complete_batch", "delete_batch", "undo",
}  # fmt: skip


@pytest.fixture
def task(settings) -> Task:
    """With an operation, a job, commands, a token and a person to do something to."""
    settings.TASKSTORE_COMMANDS = True
    ended = {"state": "done", "ended_at_ms": Task.objects.now_ms()}
    BulkOperation.objects.create(verb="purge", expected=1, done=1, began_at_ms=0, **ended)
    tokens.create("mailer", Scope.READ)
    make_user("kim", "viewer")
    clients.hear(Worker(id=7, groups=["mail"], info="{}"))
    add("reports")
    succeeded(queue="mail")
    running_list("1_0", "3_0")
    nightly = schedules.SchedulePlan(cron="@daily", task=schedules.PlannedTask(group="mail"))
    schedules.put("nightly", nightly)
    Task.objects.set_limits("reports", running=1)
    Task.objects.create_batch(owner=1, hold=True)
    completed("2_0")
    return add("mail")[0]


def path_of(name: str, task: Task) -> str:
    [pattern] = [pattern for pattern in urlpatterns if pattern.name == name]
    path = "/console/" + str(pattern.pattern).replace("<int:task_id>", str(task.id))
    first, batch = BulkOperation.objects.order_by("pk").first(), Batch.objects.latest("pk").pk
    operation = first.pk if first else 1
    path = path.replace("<int:operation_id>", str(operation)).replace("<int:batch_id>", str(batch))
    path = path.replace("<int:token_id>", str(Token.objects.get(name="mailer").pk))
    path = path.replace("<int:search_id>", "1").replace("<str:client_id>", "7")
    path = path.replace("<int:entry_id>", "1").replace("<str:name>", "nightly" if name == "schedule" else "digest")
    path = path.replace("<int:job_id>", str(EndedTask.objects.filter(group="jobs/mail").earliest("id").origin))
    path = path.replace("<int:list_id>", str(Task.objects.get(group="commands/default/open").id))
    return path.replace("<str:user_id>", str(User.objects.get(username="kim").pk))


def call(client: Client, name: str, task: Task, method: str = ""):
    asked_method, _, fields = CALLS[name]
    return getattr(client, (method or asked_method).lower())(path_of(name, task), fields)


def test_it_has_a_row_for_each_address():
    assert {pattern.name for pattern in urlpatterns} == set(CALLS) | BEFORE_ROLES


@pytest.mark.parametrize("name", CALLS)
def test_it_lets_in_who_may_and_changes_nothing_for_those_who_may_not(roles, name, task):
    _, allowed, _ = CALLS[name]
    shut_out = set(roles) - allowed
    assert {call(signed_in(roles[role]), name, task).status_code for role in shut_out} <= {403}
    assert set(Task.objects.values_list("group", flat=True)) == GROUPS
    assert not AuditEntry.objects.exists()
    assert Token.objects.get().revoked_at is None
    assert [action for action in Action if may(User.objects.get(username="kim"), action)] == [Action.SEE]
    assert 403 not in {call(signed_in(roles[role]), name, task).status_code for role in allowed}


@pytest.mark.parametrize("name", CALLS)
def test_it_shuts_out_strangers_people_without_a_role_and_people_who_left(client, name, task):
    answer = call(client, name, task)
    # What a form has sent is kept by the page of the sign-in.
    assert answer.status_code == (401 if CALLS[name][0] == "POST" else 302)
    assert ("Location" not in answer.headers) == (answer.status_code == 401)
    assert answer.headers.get("Location", "/console/login?next=/console/").startswith("/console/login?next=/console/")
    nobody = User.objects.create(username="bob")
    assert call(signed_in(nobody), name, task).status_code == 403
    gone = User.objects.create(username="ann", is_active=False, is_superuser=True)
    assert call(signed_in(gone), name, task).status_code == answer.status_code


@pytest.mark.parametrize("name", sorted(CHANGES - ASKS_FIRST))
def test_it_changes_by_post_only(roles, name, task):
    client, path = signed_in(roles["superuser"]), path_of(name, task)
    assert {getattr(client, method)(path).status_code for method in ("get", "head", "put", "delete")} == {405}
    assert Task.objects.count() == len(GROUPS)


@pytest.mark.parametrize("name", sorted(CHANGES | {"login", "password"}))
def test_it_changes_nothing_without_the_token_of_the_form(roles, name, task):
    client = Client(enforce_csrf_checks=True)
    client.force_login(roles["superuser"], backend="django.contrib.auth.backends.ModelBackend")
    fields = CALLS[name][2] if name in CALLS else {}
    answer = client.post(path_of(name, task), fields)
    assert answer.status_code == 403
    assert "Your session changed" in answer.content.decode()
    assert Task.objects.count() == len(GROUPS)


def test_it_lets_a_script_show_the_sign_in_above_the_page(client, task, settings):
    page = {"HX-Request-Type": "partial", "HX-Current-URL": "http://testserver/console/group?name=mail"}
    answer = client.get("/console/confirm", CALLS["confirm"][2], headers=page)
    assert (answer.status_code, answer.headers["HX-Retarget"]) == (401, "#sign-in")
    settings.LOGIN_URL = "https://sign-in.example/"
    answer = client.get("/console/confirm", CALLS["confirm"][2], headers=page)
    assert answer.status_code == 204
    assert answer.headers["HX-Redirect"] == "https://sign-in.example/?next=/console/group%3Fname%3Dmail"


def test_it_tells_a_script_in_a_part_of_a_page_that_it_may_not(viewer, task):
    answer = viewer.get("/console/confirm", CALLS["confirm"][2], headers={"HX-Request-Type": "partial"})
    assert answer.status_code == 403
    assert '<h2 id="dialog-title">Permission denied</h2>' in answer.content.decode()
    assert "<html" not in answer.content.decode()


@pytest.mark.parametrize("name", sorted(CALLS.keys() | {"login"}))
def test_it_lets_no_page_run_anything_from_elsewhere_or_inline_or_be_kept(roles, name, task, client):
    answer = client.get("/console/login") if name == "login" else call(signed_in(roles["superuser"]), name, task)
    assert name in CHANGES or "no-store" in answer.headers["Cache-Control"]
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    page = answer.getvalue().decode()
    assert " style=" not in page
    assert " on" not in [part[:3] for part in page.split("<")]
    assert "<style" not in page
    assert all("src=" in script.split(">")[0] for script in page.split("<script")[1:])
