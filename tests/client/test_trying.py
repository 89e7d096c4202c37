"""What is tried again, for how long, and what is raised when it is over."""

import json
from typing import Any

import httpx
import pytest

from taskstore import (
    Client,
    CommitUnknown,
    InvalidInput,
    KeyReused,
    LimitExceeded,
    NotAllowed,
    NotFound,
    StoreBusy,
    StoreUnavailable,
    TooOften,
    UnexpectedAnswer,
)
from taskstore.client.calls import Call
from taskstore.client.transport import DOUBT_S, Access, Patience, Pause, conversation
from taskstore.types.tasks import NewTask

pytestmark = pytest.mark.once

OK = httpx.Response(200, json={"tasks": [], "error": None})
BROKEN = httpx.ReadError("broken")
REFUSED = httpx.ConnectError("refused")
UNKNOWN = httpx.Response(503, json={"detail": "maybe", "code": "commit_unknown"})


class Calls(Client):
    """The calls themselves, which nobody sends."""

    def send(self, call):
        return call


CALLS: Any = Calls("http://127.0.0.1")
COMMIT = CALLS.commit(adds=[NewTask(group="mail")])
CLAIM = CALLS.claim("mail")
GROUPS = CALLS.groups()
UNDO = CALLS.undo_operation(1)


def failure(status: int, code: str = "", retry_after: str = "") -> httpx.Response:
    headers = {"Retry-After": retry_after} if retry_after else {}
    return httpx.Response(status, json={"detail": "so it is", "code": code}, headers=headers)


class File(Access):
    """Access that is another one after each start of the server."""

    def __init__(self, *tokens: str) -> None:
        self.url = "http://127.0.0.1"
        self.token, *self.further = tokens

    def refresh(self) -> None:
        self.token, *self.further = self.further or [self.token]


class Talk:
    """A call, and what happens to it; the last for ever."""

    def __init__(self, call: Call, *happens, access=None, patience_s=60.0) -> None:
        talk = conversation(call, access or File("ann"), Patience(timeout_s=30, patience_s=patience_s))
        self.asks, self.pauses, happened = [], [], None
        further = list(happens)
        try:
            while True:
                step = talk.send(happened)
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                else:
                    assert isinstance(step, httpx.Request)
                    self.asks.append(step)
                    happened = further.pop(0) if len(further) > 1 else further[0]
        except StopIteration as end:
            self.answer = end.value


@pytest.mark.parametrize("bad", [BROKEN, REFUSED, UNKNOWN, httpx.ReadTimeout(""), failure(503), failure(502)])
@pytest.mark.parametrize("call", [COMMIT, CLAIM, GROUPS])
def test_what_may_pass_is_tried_again_with_the_same_key(call, bad):
    talk = Talk(call, bad, bad, OK)
    assert talk.answer is OK
    assert [ask.headers.get("Idempotency-Key") for ask in talk.asks] == [call.key or None] * 3


@pytest.mark.parametrize("status", [429, 503])
def test_the_server_says_how_long_to_wait(status):
    assert Talk(GROUPS, failure(status, retry_after="7"), OK).pauses == [7]


@pytest.mark.parametrize(
    ("call", "happens", "error"),
    [
        (GROUPS, REFUSED, StoreUnavailable),
        (GROUPS, BROKEN, StoreUnavailable),
        (COMMIT, REFUSED, StoreUnavailable),
        (COMMIT, failure(503, "unavailable"), StoreUnavailable),
        (COMMIT, failure(503, "busy"), StoreBusy),
        (COMMIT, failure(429, retry_after="100"), TooOften),
        # What a claim took that nobody heard of comes back when its lease ends.
        (CLAIM, BROKEN, StoreUnavailable),
        (COMMIT, BROKEN, CommitUnknown),
        (COMMIT, UNKNOWN, CommitUnknown),
        (COMMIT, failure(504), CommitUnknown),
    ],
)
def test_when_patience_ends_the_error_says_what_is_known(call, happens, error):
    with pytest.raises(StoreUnavailable if error is CommitUnknown else error) as raised:
        Talk(call, happens, patience_s=0)
    assert type(raised.value) is error


def test_what_may_have_happened_is_unknown_whatever_the_last_try_says():
    with pytest.raises(CommitUnknown):
        Talk(COMMIT, BROKEN, failure(403))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(400, json={"detail": "", "errors": {"adds[0].group": ["a name"]}}), InvalidInput),
        (httpx.Response(413, json={"detail": "", "errors": {"body": ["less"]}}), LimitExceeded),
        (httpx.Response(413, text="<html>"), LimitExceeded),
        (failure(401), NotAllowed),
        (failure(403), NotAllowed),
        (failure(404), NotFound),
        (failure(409), KeyReused),
        (failure(500), UnexpectedAnswer),
        (httpx.Response(301, headers={"Location": "/elsewhere"}), UnexpectedAnswer),
        (httpx.Response(405, text="no"), UnexpectedAnswer),
    ],
)
def test_what_another_try_would_not_change_is_raised_at_once(answer, error):
    with pytest.raises(error) as raised:
        Talk(COMMIT, answer, OK)
    assert type(raised.value) is error


def test_a_new_token_is_taken_from_the_file():
    talk = Talk(GROUPS, failure(401), OK, access=File("old", "new"))
    assert [ask.headers["Authorization"] for ask in talk.asks] == ["Bearer old", "Bearer new"]
    assert talk.pauses == []


def test_a_token_that_was_accepted_before_is_refused_twice_before_that_is_believed(caplog):
    access = File("ann")
    Talk(GROUPS, OK, access=access)
    for call in (COMMIT, CLAIM):
        talk = Talk(call, failure(401), OK, access=access)
        assert (talk.answer, talk.pauses) == (OK, [DOUBT_S])
    assert "refuses the token that it has accepted before" in caplog.text
    with pytest.raises(NotAllowed):
        Talk(COMMIT, failure(401), failure(401), OK, access=access)
    with pytest.raises(NotAllowed):
        Talk(COMMIT, failure(401), OK, access=access)  # At once.


def test_a_commit_that_may_have_happened_is_not_sent_with_another_token():
    with pytest.raises(CommitUnknown, match="server restarted during the request"):
        Talk(COMMIT, BROKEN, failure(401), OK, access=File("old", "new"))
    assert Talk(CLAIM, BROKEN, failure(401), OK, access=File("old", "new")).answer is OK


def test_an_undo_is_sent_again_only_when_it_can_not_have_happened():
    assert Talk(UNDO, REFUSED, failure(503), OK).answer is OK
    with pytest.raises(CommitUnknown):
        Talk(UNDO, BROKEN, OK)


def test_a_claim_that_waits_has_longer_for_its_answer():
    [turn] = list(zip(CALLS.claim("mail", wait_ms=20_000).turns(), range(1), strict=False))
    [ask] = Talk(turn[0], OK).asks
    assert ask.extensions["timeout"]["read"] == 50


def test_a_wait_beyond_what_the_server_allows_is_several_claims(monkeypatch):
    now_s = iter([0.0, 60.0, 120.0, 150.0])
    monkeypatch.setattr("time.monotonic", lambda: next(now_s))
    turns = list(CALLS.claim("mail", wait_ms=150_000).turns())
    assert [json.loads(turn.content or b"")["wait"] for turn in turns] == [60_000, 60_000, 30_000]
    assert len({turn.key for turn in turns}) == 3
