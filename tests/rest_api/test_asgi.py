"""The API under the event loop that serves it: bodies in pieces, answers in pieces."""

import asyncio
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pytest
from asgiref.current_thread_executor import CurrentThreadExecutor
from asgiref.sync import AsyncToSync, async_to_sync
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from django.core.handlers.asgi import ASGIHandler
from django.core.signals import request_finished

from tasks_app.reading.parts import PIECE_BYTES
from tasks_app.rest_api import views
from taskstore_project.asgi import application

from .api import ANN, Api

# The application answers in threads of its own, which see only what is committed.
pytestmark = pytest.mark.usefixtures("transactional_db")

PATIENCE_S = 30


@dataclass
class Answer:
    status: int
    headers: dict[bytes, bytes]
    pieces: list[bytes]

    @property
    def value(self) -> Any:
        return json.loads(b"".join(self.pieces))


def asked(api: Api, method: str, path: bytes, body: Sequence[bytes] = (b"",), query: bytes = b"") -> Answer:
    """What the application answers to a request whose body comes in these pieces, without a Content-Length."""
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {api.secret}".encode())],
    }
    return async_to_sync(answer_to)(scope, body)


async def answer_to(scope: dict[str, Any], body: Sequence[bytes]) -> Answer:
    server = ApplicationCommunicator(get_asgi_application(), scope)
    for place, piece in enumerate(body, start=1):
        await server.send_input({"type": "http.request", "body": piece, "more_body": place < len(body)})
    start = await server.receive_output(PATIENCE_S)
    answer = Answer(status=start["status"], headers=dict(start["headers"]), pieces=[])
    is_going_on = True
    while is_going_on:
        message = await server.receive_output(PATIENCE_S)
        answer.pieces.append(message.get("body", b""))
        is_going_on = message.get("more_body", False)
    await server.wait(PATIENCE_S)
    return answer


@pytest.fixture
def api(transactional_db):
    return Api()


def test_a_body_without_its_length_is_read(api):
    answer = asked(api, "POST", b"/update", [b'{"clientid": 1, "adds"', b': [{"group": "mail"}]}'])
    assert (answer.status, answer.value["tasks"][0]["group"]) == (200, "mail")


def test_a_body_beyond_the_limit_is_refused_though_its_length_was_not_told(api, settings):
    settings.TASKSTORE_MAX_REQUEST_BYTES = 1_000
    answer = asked(api, "POST", b"/update", [b" " * 600] * 2)
    assert (answer.status, answer.value["errors"]) == (413, {"body": ["must be at most 1000 bytes"]})


def test_a_long_list_is_sent_piece_by_piece(api, monkeypatch):
    monkeypatch.setattr(views, "SNAPSHOT_TASKS", 7)
    tasks = api.committed(clientid=ANN, adds=[{"group": "a/b", "data": "x" * 200_000, "timespec": 1}] * 20)
    answer = asked(api, "GET", b"/group/a%2Fb")
    assert (answer.status, answer.headers[b"Content-Type"]) == (200, b"application/json")
    assert answer.value == tasks
    assert len([piece for piece in answer.pieces if piece]) > 5
    assert max(map(len, answer.pieces)) <= 2 * PIECE_BYTES


def test_a_path_that_is_no_utf8_names_no_group(api):
    api.add("\ufffd")
    answer = asked(api, "GET", b"/group/%FF")
    assert (answer.status, list(answer.value["errors"])) == (400, ["name"])
    assert len(asked(api, "GET", b"/group/%EF%BF%BD").value) == 1


def test_a_list_that_cannot_be_read_is_an_error_answer(api, monkeypatch):
    def fail(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(views, "pieces_of", fail)
    answer = asked(api, "GET", b"/group/mail")
    assert (answer.status, answer.value.keys()) == (500, {"detail", "request_id"})


def test_a_request_whose_client_leaves_is_finished_like_others(api, monkeypatch):
    ends = []

    def note(**_):
        ends.append(threading.current_thread())

    request_finished.connect(note)
    try:
        async_to_sync(leave)(monkeypatch)
    finally:
        request_finished.disconnect(note)
    assert len(ends) == 1


async def leave(monkeypatch):
    is_begun = asyncio.Event()

    async def left_amid_a_change_of_threads(*_):
        # As asgiref leaves the context if it is cancelled while a thread goes on after its coroutine: rarely.
        AsyncToSync.executors.current = CurrentThreadExecutor(None)
        AsyncToSync.executors.current._broken = True
        is_begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(ASGIHandler, "run_get_response", left_amid_a_change_of_threads)
    scope = {"type": "http", "method": "GET", "path": "/stats", "query_string": b"", "headers": [(b"host", b"a")]}
    server = ApplicationCommunicator(application, scope)
    await server.send_input({"type": "http.request"})
    await asyncio.wait_for(is_begun.wait(), PATIENCE_S)
    await server.send_input({"type": "http.disconnect"})
    await server.wait(PATIENCE_S)
