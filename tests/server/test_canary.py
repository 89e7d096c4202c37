"""What tasks hold is nobody's business but theirs: it is sent through every way in, and then looked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from lab.testing import NO_TLS
from taskstore.masstasker.masstasker_pb2 import BulkSetRequest, Task, UpdateRequest
from taskstore.masstasker.masstasker_pb2_grpc import MassTaskerStub
from tests.served import free_port

from .harness import START_SECONDS, Server, Store

CANARY = "canary-4711"
SECRET = "ts_canary-4712"
PASSWORD = "canary-4713"
LOOKED_FOR = re.compile(r"canary-471\d")

# What is no JSON, no field, too long, of another type, and what the store refuses: each with the canary in it.
REFUSED: list[tuple[str, str, Any]] = [
    ("POST", "/update", f'{{"clientid": 1, "adds": [{{"group": "mail", "data": "{CANARY}}}'),
    ("POST", "/update", {"clientid": 1, "adds": [{"group": "mail", "data": [CANARY]}]}),
    ("POST", "/update", {"clientid": 1, "adds": [{"group": "mail", "data_base64": CANARY + "!"}]}),
    ("POST", "/update", {"clientid": 1, "adds": [{"group": "mail", "data": CANARY, "data_base64": CANARY}]}),
    ("POST", "/update", {"clientid": 1, "adds": [{"group": "", "data": CANARY}]}),
    ("POST", "/update", {"clientid": 1, "adds": [{"group": "mail", "data": CANARY * 1_000_000}]}),
    ("POST", "/update", {"clientid": 1, "updates": [{"id": 9_999_999, "data": CANARY}]}),
    ("POST", "/import", json.dumps({"group": "mail", "data": CANARY, "priority": "x"})),
    ("POST", "/import", f'{{"group": "mail", "data": {CANARY}}}'),
    ("POST", "/jobs", {"function": "a.b", "args": {CANARY: CANARY}}),
    ("POST", "/jobs", {"function": "a.b", "kwargs": [CANARY]}),
    ("PUT", "/schedules/digest", {"cron": "@never", "task": {"group": "mail", "data": CANARY}}),
    ("POST", "/commands/nightly", {"commands": [{"cmd": f"echo {CANARY}\necho"}]}),
]
TAKEN: list[tuple[str, str, Any]] = [
    ("POST", "/update", {"clientid": 1, "adds": [{"group": "mail", "data": CANARY}] * 3}),
    ("POST", "/update", {"clientid": 1, "adds": [{"group": "mail", "data": json.dumps({"a": CANARY})}]}),
    ("POST", "/import", json.dumps({"group": "reports", "data": CANARY})),
    ("POST", "/jobs", {"function": "a.b", "args": [CANARY]}),
    ("POST", "/commands/nightly", {"commands": [{"cmd": f"echo {CANARY}"}]}),
    ("PUT", "/schedules/digest", {"cron": "@daily", "task": {"group": "mail", "data": CANARY}}),
    ("POST", "/schedules/digest/run", {}),
]
PAGES = ["", "group?name=mail", "failed", "jobs", "commands", "workers", "audit", "search?q=data:canary", "schedules"]

# Which are not for everybody.
OF_OTHERS = {"audit": 403, "search?q=data:canary": 400}


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture
def server(store: Store, port: int) -> Iterator[Server]:
    # What a library would say of its work is asked for, too.
    with store.up("--commands", "--grpc-port", str(port), PYTHONDEVMODE="", GRPC_VERBOSITY="info") as server:
        yield server


@pytest.fixture
def token(store: Store, server: Server) -> str:
    return store.token


def test_it_is_nowhere_but_where_it_was_put(store, server, port, token):
    answers = [*refused(server, token), *strangers(server)]
    for method, path, body in TAKEN:
        assert sent(server, method, path, body, token).status_code in (200, 201), path
    answers += by_grpc(port, token)
    answers += by_the_console(server, store)
    assert CANARY in server.ask("GET", "/group/mail", token).text  # It is there.
    for path in (
        "/metrics",
        "/stats",
        "/groups",
        "/clients",
        "/healthz",
        "/readyz",
        "/schema",
        "/audit",
        "/operations",
    ):
        answers.append(server.ask("GET", path, token).text)
    assert [answer for answer in answers if LOOKED_FOR.search(answer)] == []
    assert server.end() == 0
    assert LOOKED_FOR.findall(server.said + server.complaints) == []


def sent(server: Server, method: str, path: str, body: Any, token: str) -> httpx.Response:
    content = body if isinstance(body, str) else json.dumps(body)
    return server.ask(method, path, token, content=content)


def refused(server: Server, token: str) -> Iterator[str]:
    for method, path, body in REFUSED:
        answer = sent(server, method, path, body, token)
        # A commit of what is gone is refused with 200, as clients of the original read it.
        assert answer.status_code in (400, 413) or answer.json()["error"], (path, answer.text)
        yield answer.text


def strangers(server: Server) -> Iterator[str]:
    """Who has no right: neither what they send nor what they try to get in with is told."""
    for path in ("/update", f"/group?name=mail&x={CANARY}"):
        answer = sent(server, "POST", path, {"clientid": 1, "adds": [{"group": "mail", "data": CANARY}]}, SECRET)
        assert answer.status_code in (401, 405)
        yield answer.text


def by_grpc(port: int, token: str) -> Iterator[str]:
    data = AnyMessage(type_url="type.googleapis.com/mail", value=CANARY.encode())
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = MassTaskerStub(channel)
        of_ours, of_strangers = ([("authorization", f"Bearer {secret}")] for secret in (token, SECRET))
        added = UpdateRequest(created=[Task(group="mail", data=data)])
        assert stub.Update(added, metadata=of_ours, timeout=START_SECONDS, wait_for_ready=True).created_ids
        garbage: Any = channel.unary_unary("/masstasker.MassTasker/Update")
        calls: list[tuple[Any, Any, Any]] = [
            (stub.Update, added, of_strangers),
            (stub.Update, UpdateRequest(created=[Task(group="a\0", data=data)]), of_ours),
            (stub.Update, UpdateRequest(created=[Task(group="mail", data=data)], predicates=[9_999_999]), of_ours),
            (stub.BulkSet, BulkSetRequest(prototype=Task(group="a\0", data=data)), of_ours),
            (garbage, b"\xff" + CANARY.encode(), of_ours),
        ]
        for call, request, metadata in calls:
            with pytest.raises(grpc.RpcError) as error:
                call(request, metadata=metadata, timeout=START_SECONDS)
            yield f"{error.value.details()} {error.value.trailing_metadata()}"


def by_the_console(server: Server, store: Store) -> Iterator[str]:
    """The titles of all pages; of those for who may not see payloads, everything."""
    with httpx.Client(base_url=server.url, timeout=START_SECONDS, trust_env=False, verify=NO_TLS) as browser:
        posted(browser, "/console/login", username="admin", password=PASSWORD)
    making = (
        "from django.contrib.auth.models import Group, User\n"
        "for name in ('admin', 'viewer'):\n"
        "    user = User.objects.create_user(name + '2', password='correct horse battery')\n"
        "    user.groups.add(Group.objects.get(name=name))"
    )
    assert store.manage("shell", "-c", making).returncode == 0
    for name in ("admin2", "viewer2"):
        with httpx.Client(base_url=server.url, timeout=START_SECONDS, trust_env=False, verify=NO_TLS) as browser:
            opened = posted(browser, "/console/login", username=name, password="correct horse battery")
            assert opened.status_code == 302
            for page in PAGES:
                answer = browser.get(f"/console/{page}")
                assert answer.status_code == (200 if name == "admin2" else OF_OTHERS.get(page, 200))
                yield title_of(answer.text) if name == "admin2" else answer.text
            if name == "admin2":
                form = {"group": "mail", "text": CANARY, "delay": "0", "unit": "seconds", "labels": ""}
                assert posted(browser, "/console/add", **form, priority="x").status_code == 422
                assert posted(browser, "/console/add", **form, priority="0").status_code == 302
                lines = json.dumps({"group": "mail", "data": CANARY, "priority": "x"})
                yield title_of(posted(browser, "/console/import", text=lines).text)


def posted(browser: httpx.Client, path: str, **fields: str) -> httpx.Response:
    found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.get(path).text)
    assert found
    return browser.post(
        path, data={"csrfmiddlewaretoken": found[1], **fields}, headers={"Referer": str(browser.base_url)}
    )


def title_of(page: str) -> str:
    found = re.search(r"<title>(.*?)</title>", page, re.DOTALL)
    assert found
    return unescape(found[1])
