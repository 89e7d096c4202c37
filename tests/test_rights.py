"""Every way into the site is in one of the tables of who may do what, and no door opens for what opens another."""

import json

import pytest
from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.http.response import HttpResponseBase
from django.urls import URLResolver, get_resolver

from tasks_app.access import tokens
from tasks_app.live.consumer import Word
from tasks_app.models import Scope, Task
from taskstore.types.command_record import Output
from taskstore.types.job_record import JobError
from taskstore.types.tasks import NewTask
from taskstore_project.asgi import application

from .admin import test_rights as admin
from .admin.pages import add, claim
from .console import test_editing as editing
from .console import test_rights as console
from .console.commands import completed, running_list
from .jobs_store.jobs import failed
from .live.loop import in_event_loop
from .people import EVERYBODY, PAYLOADS, make_user, one_of_each_role, signed_in
from .rest_api import test_tokens as api
from .rest_api.api import Api

pytestmark = pytest.mark.once

CANARY = "canary-4711"
LEAD_FURTHER = {"", "console", "docs"}
SOCKETS = {"console/live": EVERYBODY}
WORDS = ["full", "ping"]

# What else there is to see at an address of the console.
QUESTIONS = {
    "task": [{}, {"as": "text"}, {"as": "hex"}, {"as": "tree"}],
    "group": [{"name": "mail"}, {"name": "mail", "state": "failed"}, {"name": "reports"}],
    "search": [{"q": "group:mail"}, {"q": "data:canary"}, {"q": "data.a:canary"}],
    "suggestions": [{"q": "group:"}, {"q": "data:"}, {"q": "data."}, {"q": "label."}, {"q": "label:"}],
    "command_project": [{"project": "default", "status": status} for status in ("running", "completed")],
    "command": [{"project": "default", "id": command_id} for command_id in ("1_0", "2_0")],
    "confirm": [{"verb": verb, "name": "mail", "all": "1"} for verb in ("requeue", "move", "purge")],
}


@pytest.fixture
def task(db) -> Task:
    """Tasks of each kind with the canary in their data, and one of them that is done."""
    data = json.dumps({"a": CANARY}).encode()
    add("reports", data=data * 9_000)
    add("reports", data=b"\xff" + data)
    add("mail", data=data, error="no such recipient")
    claim("mail")
    add("mail", data=data, data_type="type.googleapis.com/google.protobuf.StringValue")
    running_list("1_0", cmd=CANARY)
    completed("2_0", out=Output.of(CANARY.encode()))
    failed(queue="mail", args=[CANARY], error=JobError(type="KeyError", traceback=CANARY))
    Task.objects.create_batch(owner=1, hold=True, then=NewTask(group="mail", data=data))
    make_user("kim", "viewer")
    tokens.create("mailer", Scope.READ)
    return add("mail", data=data)


def test_every_address_of_the_site_is_in_a_table():
    patterns = get_resolver().url_patterns
    included = {(str(each.pattern), each.app_name) for each in patterns if isinstance(each, URLResolver)}
    # Each of their tables fails for an address without a row.
    assert included == {("console/", "tasks_app"), ("admin/", "admin"), ("docs/", "documentation"), ("", "rest_api")}
    assert {str(each.pattern) for each in patterns if not isinstance(each, URLResolver)} == LEAD_FURTHER
    assert set(Word) == set(WORDS)


@pytest.mark.parametrize(("method", "path"), api.GUARDED.values(), ids=api.GUARDED)
def test_the_api_opens_for_nobody_who_signs_in(people, method, path):
    for user in people.values():
        assert signed_in(user).generic(method, path).status_code == 401


def test_the_pages_open_for_no_token(task):
    machine = Api(Scope.OPERATE).http
    asked = [console.call(machine, name, task) for name in console.CALLS]
    asked += [machine.get(admin.path_of(page, {})) for page in admin.PAGES]
    assert {(answer.status_code, answer.headers.get("Location", "").partition("?")[0]) for answer in asked} == {
        (302, "/console/login"),
        (302, "/admin/login/"),
        (401, ""),  # The sign-in, which keeps what a form has sent.
    }


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_no_page_gives_data_away_to_those_who_may_not_see_it(people, task, role):
    browser = signed_in(people[role])
    for name in {*console.CALLS, *QUESTIONS}:
        for question in QUESTIONS.get(name, [console.CALLS[name][2]]):
            assert CANARY not in shown(browser.get(console.path_of(name, task), question)), (name, question)
    for page in admin.PAGES:
        assert CANARY not in shown(browser.get(admin.path_of(page, {"task": task.id, "endedtask": task.id}))), page
    for path in {*(path for _, path in api.GUARDED.values()), *api.OPEN}:
        assert CANARY not in shown(browser.get(path)), path


def test_whoever_edits_what_they_may_not_see_is_shown_no_data(people, task):
    browser = signed_in(people["operator"])
    review = editing.send(browser, task, editing.opened(browser, task) | {"priority": "2"})
    assert "Priority" in editing.differences(shown(review))
    assert CANARY not in shown(review)


def test_pages_give_data_to_those_who_may_see_it(people, task):
    for role in people:
        page = shown(signed_in(people[role]).get(console.path_of("task", task)))
        assert (CANARY in page) == (role in PAYLOADS)
    assert CANARY in shown(Api(Scope.READ).http.get("/group/mail"))


@pytest.mark.django_db(transaction=True)
@in_event_loop
async def test_sockets_are_for_those_who_may_see_groups_and_tell_no_data():
    cookies = await sync_to_async(cookies_of_people)()
    for role, cookie in cookies.items():
        for path, allowed in SOCKETS.items():
            assert await says(path, cookie) == (role in allowed), (role, path)


def cookies_of_people() -> dict[str, str]:
    add("mail", data=CANARY.encode())
    people = one_of_each_role() | {"no role": make_user("bob")}
    name = settings.SESSION_COOKIE_NAME
    return {role: f"{name}={signed_in(user).cookies[name].value}" for role, user in people.items()} | {"stranger": ""}


async def says(path: str, cookie: str) -> bool:
    """Whether the socket opens, and goes on after each word; what comes out of it has no data."""
    headers = [(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"cookie", cookie.encode())]
    socket = WebsocketCommunicator(application, f"/{path}", headers=headers)
    is_open, _ = await socket.connect()
    if is_open:
        for word in WORDS:
            await socket.send_to(text_data=json.dumps({"type": word}))
            assert CANARY not in await socket.receive_from(timeout=5)
        await socket.disconnect()
    return bool(is_open)


def shown(answer: HttpResponseBase) -> str:
    return answer.getvalue().decode(errors="replace")
