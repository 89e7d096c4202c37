"""How much a client may have at work at once."""

import socket
import time

import pytest
from django.test import override_settings

from tasks_app.access import tokens
from tasks_app.access.request_limits import LEAST_BYTES, Charge, sender_of

MIB = 2**20


@pytest.fixture
def few_bytes():
    with override_settings(TASKSTORE_MAX_BYTES_IN_FLIGHT=3 * MIB):
        yield


def test_beyond_the_limit_a_request_waits_until_another_is_answered(few_bytes):
    first, second, third = Charge("Ann"), Charge("Ann"), Charge("Ann")
    assert first.raise_to(2 * MIB)
    assert second.raise_to(MIB)
    assert not third.raise_to(MIB)
    second.end()
    second.end()
    assert third.raise_to(MIB)
    first.end()
    third.end()


def test_a_request_that_comes_alone_may_be_larger(few_bytes):
    only = Charge("Ann")
    assert only.raise_to(4 * MIB)
    assert not Charge("Ann").raise_to(MIB)
    assert Charge("Bob").raise_to(LEAST_BYTES)
    only.end()


def test_a_body_counts_as_it_comes(few_bytes):
    first, second = Charge("Ann"), Charge("Ann")
    assert first.raise_to(2 * MIB)
    assert second.raise_to(MIB // 2)
    assert second.raise_to(MIB)
    assert not second.raise_to(MIB + 1)
    first.end()
    assert second.raise_to(MIB + 1)
    second.end()


def test_a_token_counts_for_itself_and_others_by_their_address(db):
    _, secret = tokens.create("Ann", "work")
    assert sender_of(f"Bearer {secret}", "10.0.0.1", "") == "address 10.0.0.1"  # Nobody has looked it up yet.
    tokens.recently_valid(secret)
    assert sender_of(f"Bearer {secret}", "10.0.0.1", "") != "address 10.0.0.1"
    assert sender_of("Bearer invented", "10.0.0.1", "") == sender_of("", "10.0.0.1", "")


@pytest.mark.parametrize("kind", ["served", "served_by_uvicorn"])
def test_a_server_takes_no_more_of_a_client_until_it_is_answered(request, kind, few_bytes):
    server = request.getfixturevalue(kind)
    body = b'{"clientid": 1, "group": "mail"}' + b" " * 2 * MIB
    head = f"POST /claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    # By the address: a token that is looked up again meanwhile counts for nothing until it is known.
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as unfinished:
        unfinished.sendall(head.encode() + body[:-1])
        wait_until(lambda: server.request("POST", "/claim", content=body).status_code == 429)
        refused = server.request("POST", "/claim", content=body)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert server.request("GET", "/healthz").status_code == 200
        unfinished.sendall(body[-1:])
        assert b" 401 " in unfinished.recv(1_000)
    wait_until(lambda: server.request("POST", "/claim", content=body).status_code == 401)


def wait_until(condition):
    until_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)
