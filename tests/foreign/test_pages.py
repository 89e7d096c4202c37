"""The project's pages stay its own, and its people are found, whatever they are made of."""

import pytest

pytestmark = [pytest.mark.foreign, pytest.mark.django_db]  # Their databases are made beside that of the tests.

ERRORS = """
from django.test import Client

client = Client(raise_request_exception=False)
answers = {path: client.get(path) for path in ("/nothing", "/forbidden", "/bad", "/failing")}
print(json.dumps({path: [answer.status_code, answer.content.decode()] for path, answer in answers.items()}))
"""

# A superuser, an operator and somebody without a role.
PEOPLE = """
from django.test.utils import setup_test_environment
from django.contrib.auth.models import Group
from django.test import Client
from people.models import Person
from tasks_app.models import AuditEntry, Task
from taskstore.types.tasks import NewTask

setup_test_environment()  # Of which responses keep their contexts.
[task] = Task.objects.commit(owner=1, adds=[NewTask(group="mail", data=b"hello")])
Person.objects.all().delete()
root = Person.objects.create_superuser("root@example.org", "a")
operator = Person.objects.create_user("operator@example.org", "a", is_staff=True)
operator.groups.set([Group.objects.get(name="operator")])
nobody = Person.objects.create_user("nobody@example.org", "a", is_staff=True)
"""

ADMIN = """
task_page = f"/admin/tasks_app/task/{task.id}/change/"
paths = ["/admin/tasks_app/task/", task_page, "/admin/tasks_app/endedtask/"]
seen = {}
for person in (root, operator, nobody):
    client = Client(raise_request_exception=False)
    client.force_login(person)
    seen[person.email.partition("@")[0]] = [client.get(path).status_code for path in paths]
client.force_login(operator)
form = client.get(task_page).context["adminform"].form
values = {name: form[name].value() for name in form.fields if form[name].value() is not None}
when = values.pop("available_at")
values |= {"available_at_0": f"{when:%Y-%m-%d}", "available_at_1": f"{when:%H:%M:%S}", "group": "letters"}
seen["saved"] = client.post(task_page, values).status_code
[moved] = Task.objects.group("letters")
seen["by"] = AuditEntry.objects.get(action="edit", details__ids=[task.id, moved.id]).actor
# What the console would confirm is not offered without it.
text = client.get("/admin/tasks_app/task/").content.decode() + client.get(task_page).content.decode()
seen["offered"] = "Purge" in text or "/delete/" in text
seen["delete"] = client.get(f"/admin/tasks_app/task/{moved.id}/delete/").status_code
Task.objects.commit(owner=1, deletes=[moved.id])
print(json.dumps(seen))
"""

CONSOLE = """
from tasks_app.jobs.queues import enqueue
from taskstore.types.job_record import JobRecord

def status_of(path, **form):
    return (client.post if form else client.get)(f"/console/{path}", form).status_code

job = enqueue(JobRecord(function="shop.mail.send"))
seen = {}
for person in (operator, nobody):
    client = Client(raise_request_exception=False)
    client.force_login(person)
    seen[person.email] = [status_of(path) for path in ("", f"jobs/{job.id}", "settings/people")]
client = Client(raise_request_exception=False)
page = f"settings/people/{operator.pk}"
seen |= {
    "sign in": status_of("login", username="root@example.org", password="a"),
    "people": "operator@example.org" in client.get("/console/settings/people").content.decode(),
    "person": status_of(page),
    "change rights": status_of(page, role="viewer"),
    "add": status_of("settings/people/add", name="new@example.org", role="viewer"),
    "add without an address": status_of("settings/people/add", name="x", role="viewer"),
    **{verb: status_of(f"{page}/{verb}", yes="yes") for verb in ("sign-out", "close", "open", "password")},
    "close oneself": status_of(f"settings/people/{root.pk}/close", yes="yes"),
    "no such person": status_of("settings/people/17"),
    "save a search": status_of("search/save", name="mine", q="group:mail"),
    "actors": sorted({entry.actor for entry in AuditEntry.objects.exclude(action="edit")}),
}
Person._meta.get_field("department").blank = False
page = client.post("/console/settings/people/add", {"name": "lee@example.org", "role": "viewer"})
seen["add without a department"] = "Department: This field cannot be blank." in page.content.decode()
copy = client.cookies["sessionid"].value
client.post("/console/logout")
client.cookies["sessionid"] = copy
seen["after the sign-out"] = status_of("")
print(json.dumps(seen))
"""


def test_errors_are_shown_by_the_projects_own_pages(project):
    answers = project.run(ERRORS)
    statuses = {"/nothing": 404, "/forbidden": 403, "/bad": 400, "/failing": 500}
    assert {path: status for path, (status, _) in answers.items()} == statuses
    assert "The requested resource was not found on this server." in answers["/nothing"][1]
    assert not any("overview" in text for _, text in answers.values())


def test_people_of_another_model_have_their_rights_in_the_admin(project):
    assert project.run(PEOPLE + ADMIN) == {
        "root": [200, 200, 200],
        "operator": [200, 200, 200],
        "nobody": [403, 403, 403],
        "saved": 302,
        "by": "operator@example.org",
        "offered": False,
        "delete": 403,
    }


@pytest.mark.parametrize("sessions", ["django.contrib.sessions.backends.db", "taskstore_project.sessions"])
def test_and_in_the_console(project, sessions):
    assert project.run(PEOPLE + CONSOLE, URLS="shop.with_console", SESSIONS=sessions) == {
        "operator@example.org": [200, 200, 403],
        "nobody@example.org": [403, 403, 403],
        "sign in": 302,
        "people": True,
        "person": 200,
        "change rights": 302,
        "add": 200,
        "add without an address": 422,
        "sign-out": 302 if sessions == "taskstore_project.sessions" else 422,  # Others can't be ended early.
        "close": 302,
        "open": 302,
        "password": 200,
        "close oneself": 422,
        "no such person": 404,
        "save a search": 302,
        "actors": ["root@example.org"],
        "add without a department": True,
        "after the sign-out": 302,
    }
