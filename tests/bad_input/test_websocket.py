"""The catalogue against the socket of the console: turned away, nothing changed, and others are served on."""

from __future__ import annotations

from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from websockets import CloseCode
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.people import make_user, signed_in
from tests.served import Served

from .catalogue import expanded, table
from .store import everything, three_tasks

PATIENCE_S = 60
CATALOGUE = table("websocket")
OPENINGS, MESSAGES = CATALOGUE["openings"], CATALOGUE["messages"]
PATH = "/console/live"


@pytest.fixture
def cookie(served: Served) -> str:
    """What the browser of a viewer sends."""
    browser = signed_in(make_user("vera", "viewer"))
    return f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"


@pytest.mark.parametrize("case", OPENINGS, ids=[case["it"] for case in OPENINGS])
def test_it_is_not_let_in(served, cookie, case):
    three_tasks()
    before = everything()
    assert status_of(served.url, case, cookie) == case["status"]
    assert status_of(served.url, {}, cookie) == 101
    assert everything() == before


def status_of(url: str, case: dict[str, Any], cookie: str) -> int:
    """What comes of asking for a socket with what the case says in place of what is right."""
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Origin": case.get("origin", url),
        "Cookie": expanded(case.get("cookie", cookie), {}),
        "Sec-WebSocket-Version": case.get("version", "13"),
        "Sec-WebSocket-Key": case.get("key", "dGhlIHNhbXBsZSBub25jZQ=="),
    }
    connection = HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_S)
    connection.request("GET", case.get("path", PATH), headers={name: text for name, text in headers.items() if text})
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize("case", MESSAGES, ids=[case["it"] for case in MESSAGES])
def test_it_ends_its_connection_and_no_other(served, cookie, case):
    three_tasks()
    before = everything()
    with opened(served.url, cookie) as other:
        with opened(served.url, cookie) as page:
            say(page, case)
            assert code_of_the_end(page) == case["code"]
        other.send('{"type": "full"}')
        while "full" not in other.recv(timeout=PATIENCE_S):
            pass
    assert everything() == before


def opened(url: str, cookie: str) -> ClientConnection:
    sent = {"Origin": url, "Cookie": cookie}
    return connect(f"ws{url.removeprefix('http')}{PATH}", additional_headers=sent, proxy=None, open_timeout=PATIENCE_S)


def say(page: ClientConnection, case: dict[str, Any]) -> None:
    if "frame" in case:
        page.socket.sendall(bytes.fromhex(case["frame"]))
    elif "hex" in case:
        page.send(bytes.fromhex(case["hex"]) * case.get("times", 1))
    else:
        page.send(expanded(case["text"], {}))


def code_of_the_end(page: ClientConnection) -> int:
    """1006: the connection was cut."""
    with pytest.raises(ConnectionClosed) as end:
        read_to_the_end(page)
    return end.value.rcvd.code if end.value.rcvd else CloseCode.ABNORMAL_CLOSURE


def read_to_the_end(page: ClientConnection) -> None:
    while True:
        page.recv(timeout=PATIENCE_S)
