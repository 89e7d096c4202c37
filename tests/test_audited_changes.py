"""Each change by a person or a token with the scope `operate` leaves one entry in the audit log, at any address.

An address that changes something and has no row here fails.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client

from tasks_app import schedules
from tasks_app.access import tokens
from tasks_app.bulk import Requeue, Selection
from tasks_app.console.urls import urlpatterns as console_urls
from tasks_app.control import pauses
from tasks_app.core.actors import Actor
from tasks_app.models import AuditEntry, BulkOperation, EndedTask, Scope, Task, Token
from tasks_app.schedules import PlannedTask, SchedulePlan
from taskstore.endpoints import ENDPOINTS
from taskstore.types.command_record import CommandStatus
from taskstore.types.tasks import NewTask

from .admin.pages import fields_of
from .command_lists.commands import submitted
from .command_lists.stages import completed, is_in, running_list
from .console.store import AGREED, change_all
from .console.test_editing import form_of
from .console.test_rights import CALLS, SCHEDULE
from .jobs_store.jobs import failed
from .people import make_user, signed_in
from .rest_api.api import ANN, Api

pytestmark = [pytest.mark.once, pytest.mark.django_db]

OLD, NEW = "correct horse battery", "a password of my own"


@dataclass(frozen=True, kw_only=True)
class World:
    """What there is to be changed, and who changes it."""

    ada: Client
    task: Task
    held: Task
    bob: User
    token: Token
    operator: Api
    commander: Api
    operation: BulkOperation


@pytest.fixture
def world(settings) -> World:
    settings.TASKSTORE_COMMANDS = True
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    ada = make_user("ada", "admin")
    ada.set_password(OLD)
    ada.save()
    Task.objects.commit(owner=ANN, adds=[NewTask(group="reports")])
    [held] = Task.objects.claim("reports", owner=ANN)
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", error="no such recipient")])
    Task.objects.commit(owner=ANN, adds=[NewTask(group="again", error="no such recipient")])
    pauses.pause("paused", Actor("bob"))
    for name in ("digest", "paused"):
        schedules.put(name, SchedulePlan(cron="@daily", task=PlannedTask(group="mail")), Actor("bob"))
    schedules.pause("paused", Actor("bob"))
    token, _ = tokens.create("backup", Scope.WORK)
    return World(
        ada=signed_in(ada),
        task=task,
        held=held,
        bob=make_user("bob", "viewer"),
        token=token,
        operator=Api(Scope.OPERATE),
        commander=Api(Scope.COMMANDS),
        operation=change_all(Requeue, Selection(group="again")),
    )


def limited() -> Any:
    return Task.objects.set_limits("limited", running=1)


def held_batch(adds: int) -> int:
    batch, _ = Task.objects.create_batch(owner=ANN, adds=[NewTask(group="parts")] * adds, hold=True)
    return batch.id


def remove_limits(world: World) -> Any:
    limited()
    return world.operator.http.delete("/groups/limited/limits")


def remove_limit(world: World) -> Any:
    limited()
    return world.ada.post("/console/limits/remove", {"name": "limited"})


def console(name: str, /, **fields: Any) -> Callable[[World], Any]:
    [pattern] = [pattern for pattern in console_urls if pattern.name == name]

    def send(world: World) -> Any:
        path = f"/console/{pattern.pattern}".replace("<int:task_id>", str(world.task.id))
        path = path.replace("<int:token_id>", str(world.token.pk)).replace("<str:user_id>", str(world.bob.pk))
        seen = {"bound": Task.objects.newest_id(), "as_of": Task.objects.now_ms()}
        return world.ada.post(path, {**seen, **fields})

    return send


def unfinished() -> BulkOperation:
    """An operation that another process is at."""
    return BulkOperation.objects.create(verb="purge", expected=1, began_at_ms=0, held_until_ms=2**52)


def bulk_over_rest(world: World) -> Any:
    asked = {"verb": "requeue", "group": "mail"}
    _, seen = world.operator.post("/bulk/preview", asked)
    return world.operator.post("/bulk", {**asked, "expected": 1, "bound": seen["bound"], "as_of": seen["as_of"]})


def undo(world: World) -> Any:
    """An operation that was begun and ended before the test looks."""
    return world.ada.post(f"/console/operations/{world.operation.pk}/undo")


def open_account(world: World) -> Any:
    User.objects.filter(pk=world.bob.pk).update(is_active=False)
    return console("open_account")(world)


def imported(world: World) -> Any:
    question = world.ada.post("/console/import", {"text": LINE}).content.decode()
    digest = re.search(r'name="digest" value="(\w+)"', question)
    return world.ada.post("/console/import", {"text": LINE, "digest": digest and digest[1]})


def reopened(world: World) -> Any:
    task, _ = running_list()
    return world.commander.post(f"/commands/default/lists/{task.id}/reopen", {})


def edit(world: World) -> Any:
    url = f"/console/task/{world.task.id}/edit"
    fields = form_of(world.ada.get(url).content.decode())
    return world.ada.post(url, fields | {"priority": "7", "confirmed": "1"})


def on_form(path: str, /, **fields: Any) -> Callable[[World], Any]:
    """Send the form of a page of the admin with some fields changed."""

    def send(world: World) -> Any:
        url = f"/admin/{path}".format(world=world)
        return world.ada.post(url, fields_of(world.ada, url) | fields)

    return send


def of_schedule(page: str, name: str = "digest", **fields: Any) -> Callable[[World], Any]:
    return lambda world: world.ada.post(f"/console/schedules/{name}/{page}", fields)


def cancel_command(world):
    fields = {"project": "default", "id": running_list()[1].commands[0].id}
    return world.ada.post("/console/commands/cancel", fields)


def of_commands(page: str, status: CommandStatus) -> Callable[[World], Any]:
    """Done to one that lies there."""

    def send(world: World) -> Any:
        is_in(status)
        return world.ada.post(f"/console/commands/{page}", {"project": "default", "all": "1", "expected": "1"})

    return send


ALL = {"name": "mail", "all": "1", "expected": "1"}
NAMED = {"give_back": {"name": "reports"}}  # Where somebody holds a task.
LINE = '{"group": "mail"}'
WEEKLY = {"cron": "@weekly", "task": {"group": "mail"}}
PARAMETERS = {"args": "[]", "kwargs": "{}"}
PASSWORDS = {"old_password": OLD, "new_password1": NEW, "new_password2": NEW}

# By its name: what the audit log says, and how it is done.
CONSOLE = {
    "add": ("add", console("add", group="mail", delay="0", unit="seconds", priority="0")),
    "pause": ("pause", console("pause", name="mail")),
    "resume": ("resume", console("resume", name="paused")),
    "set_limit": ("set limits", console("set_limit", name="mail", running="3")),
    "remove_limit": ("remove limits", remove_limit),
    "edit": ("edit", edit),
    "give_back": ("give back", lambda world: world.ada.post(f"/console/task/{world.held.id}/give-back")),
    "cancel_task": ("cancel", lambda world: world.ada.post(f"/console/task/{world.held.id}/cancel")),
    **{
        f"{verb}_many": (verb.replace("_", " "), console(f"{verb}_many", **ALL | NAMED.get(verb, {}), **fields))
        for verb, fields in AGREED.items()
    },
    "cancel": ("cancel", lambda world: world.ada.post(f"/console/operations/{unfinished().pk}/cancel")),
    "undo": ("undo", undo),
    "import": ("import", imported),
    "add_job": ("add", console("add_job", function="mail.send")),
    "requeue_job": (
        "requeue",
        lambda world: world.ada.post(f"/console/jobs/{failed()}/requeue", PARAMETERS | {"confirmed": "1"}),
    ),
    "release_batch": ("release batch", lambda world: world.ada.post(f"/console/batches/{held_batch(0)}/release")),
    "complete_batch": ("complete batch", lambda world: world.ada.post(f"/console/batches/{held_batch(1)}/complete")),
    "delete_batch": ("purge", lambda world: world.ada.post(f"/console/batches/{held_batch(1)}/delete")),
    "delete_job": ("delete", lambda world: world.ada.post(f"/console/jobs/{failed()}/delete")),
    "add_schedule": ("put schedule", console("add_schedule", name="weekly", **SCHEDULE)),
    "edit_schedule": ("put schedule", of_schedule("edit", **SCHEDULE | {"cron": "@weekly"})),
    "pause_schedule": ("pause schedule", of_schedule("pause")),
    "resume_schedule": ("resume schedule", of_schedule("resume", "paused")),
    "run_schedule": ("run schedule", of_schedule("run")),
    "delete_schedule": ("delete schedule", of_schedule("delete")),
    "submit_commands": ("submit", console("submit_commands", project="default", lines="true")),
    "reopen_list": ("reopen", lambda world: world.ada.post(f"/console/commands/list/{running_list()[0].id}/reopen")),
    "cancel_command": ("cancel", cancel_command),
    "retry_commands": ("retry", of_commands("retry", CommandStatus.FAILED_COUNT)),
    "stash_commands": ("stash", of_commands("stash", CommandStatus.NEW)),
    "unstash_commands": ("unstash", of_commands("unstash", CommandStatus.NEW_STASHED)),
    "archive_commands": ("archive", of_commands("archive", CommandStatus.COMPLETED)),
    "add_token": ("create token", console("add_token", name="cron", scope="work")),
    "revoke_token": ("revoke token", console("revoke_token")),
    "add_person": ("add user", console("add_person", name="carl", role="viewer")),
    "person": ("change rights", console("person", role="operator")),
    "close_account": ("close account", console("close_account")),
    "open_account": ("open account", open_account),
    "reset_password": ("reset password", console("reset_password")),
    "sign_out_person": ("sign out everywhere", console("sign_out_person")),
    "password": ("change password", console("password", **PASSWORDS)),
    "login": ("sign in", lambda world: Client().post("/console/login", {"username": "ada", "password": OLD})),
    "logout": ("sign out", console("logout")),
    "logout_everywhere": ("sign out everywhere", console("logout_everywhere")),
}
REST = {
    "set_limits": (
        "set limits",
        lambda world: world.operator.http.put("/groups/mail/limits", json.dumps({"running": 1}), "application/json"),
    ),
    "remove_limits": ("remove limits", remove_limits),
    "release_batch": ("release batch", lambda world: world.operator.post(f"/batches/{held_batch(0)}/release", {})),
    "complete_batch": ("complete batch", lambda world: world.operator.post(f"/batches/{held_batch(1)}/complete", {})),
    "delete_batch": ("purge", lambda world: world.operator.http.delete(f"/batches/{held_batch(1)}")),
    "pause": ("pause", lambda world: world.operator.post("/groups/mail/pause", {})),
    "resume": ("resume", lambda world: world.operator.post("/groups/paused/resume", {})),
    "bulk": ("requeue", bulk_over_rest),
    "cancel": ("cancel", lambda world: world.operator.post("/cancel", {"ids": [world.held.id]})),
    "requeue_job": ("requeue", lambda world: world.operator.post(f"/jobs/{failed()}/requeue", {})),
    "delete_job": ("delete", lambda world: world.operator.http.delete(f"/jobs/{failed()}")),
    "reopen_command_list": ("reopen", reopened),
    "retry_commands": (
        "retry",
        lambda world: (completed(), world.commander.post("/commands/default/retry", {"status": "completed"})),
    ),
    "cancel_commands": (
        "cancel",
        lambda world: world.commander.post(
            "/commands/default/cancel", {"commands": [running_list()[1].commands[0].id]}
        ),
    ),
    "stash_commands": ("stash", lambda world: (submitted(1), world.commander.post("/commands/default/stash", {}))),
    "unstash_commands": (
        "unstash",
        lambda world: (is_in(CommandStatus.NEW_STASHED), world.commander.post("/commands/default/unstash", {})),
    ),
    "archive_commands": ("archive", lambda world: (completed(), world.commander.post("/commands/default/archive", {}))),
    "put_schedule": (
        "put schedule",
        lambda world: world.operator.http.put("/schedules/weekly", json.dumps(WEEKLY), "application/json"),
    ),
    "delete_schedule": ("delete schedule", lambda world: world.operator.http.delete("/schedules/digest")),
    "pause_schedule": ("pause schedule", lambda world: world.operator.post("/schedules/digest/pause", {})),
    "resume_schedule": ("resume schedule", lambda world: world.operator.post("/schedules/paused/resume", {})),
    "run_schedule": ("run schedule", lambda world: world.operator.post("/schedules/digest/run", {})),
    "cancel_operation": ("cancel", lambda world: world.operator.post(f"/operations/{unfinished().pk}/cancel", {})),
    "undo_operation": ("undo", lambda world: world.operator.post(f"/operations/{world.operation.pk}/undo", {})),
}
ADMIN = {
    "tasks_app_task_add": ("add", on_form("tasks_app/task/add/", group="mail")),
    "tasks_app_task_change": ("edit", on_form("tasks_app/task/{world.task.id}/change/", priority="7")),
}

# What a browser looks like, and what somebody keeps for themselves is nobody else's business.
NO_CHANGES = {"live", "theme", "save_search", "rename_search", "delete_search"}
# What workers do is in the history of each task; the last two only read.
OF_WORKERS = {
    "update",
    "claim",
    "create_batch",
    "import",
    "heartbeat",
    "progress",
    "enqueue",
    "submit_commands",
    "tasks_by_body",
    "bulk_preview",
}
# Pages of the admin that change nothing, refuse to, or lead to the console.
READ = {
    "index", "login", "logout", "password_change", "password_change_done", "autocomplete", "jsi18n", "view_on_site",
    "app_list", None,
    "tasks_app_task_history", "tasks_app_task_delete", "tasks_app_task_changelist",
    *(f"tasks_app_endedtask_{page}" for page in ("changelist", "add", "history", "delete", "change")),
}  # fmt: skip
WAYS = {
    **{("console", name): way for name, way in CONSOLE.items()},
    **{("REST", name): way for name, way in REST.items()},
    **{("admin", name): way for name, way in ADMIN.items()},
}


@pytest.mark.parametrize("address", WAYS, ids=" ".join)
def test_it_leaves_one_entry(world, address):
    action, change = WAYS[address]
    before = {entry.id for entry in AuditEntry.objects.all()}
    change(world)
    entries = AuditEntry.objects.exclude(id__in=before).values_list("actor", "action", "done")
    assert list(entries) == [("token:Ann" if address[0] == "REST" else "ada", action, 1)]


def test_each_changing_address_has_a_row():
    posts = {name for name, (method, _, _) in CALLS.items() if method == "POST"}
    others = {pattern.name for pattern in console_urls} - set(CALLS)
    assert posts | others == CONSOLE.keys() | NO_CHANGES
    assert {endpoint.name for endpoint in ENDPOINTS if endpoint.method != "GET"} == REST.keys() | OF_WORKERS
    assert {pattern.name for pattern in flat(admin.site.urls[0])} == ADMIN.keys() | READ


def flat(patterns: Any) -> Iterator[Any]:
    for pattern in patterns:
        yield from flat(pattern.url_patterns) if hasattr(pattern, "url_patterns") else [pattern]


def test_what_only_reads_changes_nothing(world):
    """Also when the highest administrator asks."""
    before = list(AuditEntry.objects.values()), list(EndedTask.objects.values())
    root = signed_in(User.objects.create_superuser("root"))
    place, row = "/admin/tasks_app/endedtask/", EndedTask.objects.order_by("pk")[0].pk
    for page in (f"{row}/change/", f"{row}/delete/", "add/"):
        assert root.post(place + page, {"post": "yes", "name": "forged"}).status_code == 403
    root.post(place, {"action": "purge", "_selected_action": [row], "post": "yes"})
    assert (list(AuditEntry.objects.values()), list(EndedTask.objects.values())) == before
