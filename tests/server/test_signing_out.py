"""A sign-out on real servers: it ends a session in every process, and its sockets."""

from __future__ import annotations

import re
from contextlib import ExitStack, suppress

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from lab.testing import NO_TLS

from .conftest import IS_POSTGRESQL
from .harness import START_SECONDS, Server, wait_for
from .nodes import PASSWORD, signed_in, viewer

NO_RIGHT = 4403
MANY = 10  # Requests that reach each of two processes.


def statuses(server: Server, cookies: dict[str, str]) -> set[int]:
    """What the console answers to whoever has these cookies."""
    return {
        httpx.get(f"{server.url}/console/workers", cookies=cookies, trust_env=False, verify=NO_TLS).status_code
        for _ in range(MANY)
    }


def live_page(server: Server, cookies: dict[str, str]) -> ClientConnection:
    sent = {"Origin": server.url, "Cookie": "; ".join(f"{name}={text}" for name, text in cookies.items())}
    address = f"ws{server.url.removeprefix('http')}/console/live"
    return connect(address, additional_headers=sent, proxy=None, open_timeout=START_SECONDS)


def code_of_the_end(page: ClientConnection) -> int | None:
    with suppress(ConnectionClosed):
        while True:
            page.recv(timeout=START_SECONDS)
    return page.close_code


def test_a_copied_cookie_is_worth_nothing_after_the_sign_out(store):
    with store.up(command="serve --workers 2" if IS_POSTGRESQL else "up") as server:
        with viewer(store, server):
            pass
        for path, action in {"logout": "sign out", "logout/everywhere": "sign out everywhere"}.items():
            with signed_in(server, "vera", PASSWORD) as browser, ExitStack() as opened:
                copied = dict(browser.cookies)
                assert statuses(server, copied) == {200}
                sockets = [opened.enter_context(live_page(server, copied)) for _ in range(4)]
                page = browser.get("/console/password").text
                token, *_ = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
                form, referer = {"csrfmiddlewaretoken": token}, {"Referer": server.url}
                assert browser.post(f"/console/{path}", data=form, headers=referer).status_code == 302
                wait_for(lambda copied=copied: statuses(server, copied) == {302}, "the end of the session everywhere")
                assert [code_of_the_end(socket) for socket in sockets] == [NO_RIGHT] * len(sockets)
                actions = [entry["action"] for entry in server.ask("GET", "/audit", store.token).json()["entries"]]
                assert {"sign in", action} <= set(actions)
        server.end()
    assert "sign in: vera from 127.0.0.1" in server.complaints
