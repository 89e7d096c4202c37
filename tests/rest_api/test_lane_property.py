"""The fast lane answers as the long way does, to the byte: thousands of generated requests go both ways."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks_app import database
from tasks_app.access import tokens
from tasks_app.models import Scope, Task
from tasks_app.rest_api.lane import Lane
from taskstore.types.tasks import NewTask

from ..examples import examples
from .api import ANN, BOB
from .connections import Connection

pytestmark = pytest.mark.usefixtures("transactional_db")

# A run has tasks and groups of its own. In a request these stand for them, and in an answer they stand here again.
RUN = b"@RUN@"
IDS = [b"@ID%d@" % number for number in range(5)]
FIRST_ID = 2_000_000  # From here on all ids of a run have as many digits: other tests may have gone far beyond.
runs = count(100_000)

TOKENS = [*[b"ann"] * 6, b"bound", b"reader", b"within", b"wrong"]

CLAIMS = [
    b'{"clientid":1,"group":"g@RUN@a"}',
    b'{"clientid":2,"group":"g@RUN@b","duration":5000,"order":"oldest"}',
    b'{"clientid":1,"groups":["g@RUN@a","g@RUN@none"],"order":"oldest","limit":2}',
    b'{"clientid":1,"group":"g@RUN@none"}',
    b'{"clientid":1,"group":"g@RUN@a","depends":[@ID0@]}',
    b'{"clientid":1,"group":"g@RUN@a","depends":[12]}',
    b'{"clientid":1,"group":"g@RUN@a","wait":1}',
    b'{"clientid":1,"group":"g@RUN@none","wait":1}',
    b'{"clientid":1,"group":"","key":"k@RUN@"}',
    b'{"clientid":1,"group":"g@RUN@a","key":"k@RUN@"}',
    b'{"clientid":1,"group":"commands/x"}',
]
UPDATES = [
    b'{"clientid":1,"deletes":[@ID0@]}',
    b'{"clientid":1,"deletes":[@ID2@]}',
    b'{"deletes":[@ID2@, @ID3@], "clientid":2}',
    b'{"clientid":1,"deletes":[]}',
    b'{"clientid":1,"deletes":null}',
    b'{"clientid":1,"deletes":[@ID0@,@ID0@]}',
    b'{"clientid":1,"deletes":[7,-1,0]}',
    b'{"clientid":1,"adds":[{"group":"g@RUN@c","data":"x","labels":{"to":"Bob"},"priority":3}]}',
    b'{"clientid":1,"adds":[{"group":"other","data":"x"}],"deletes":[@ID1@],"depends":[@ID2@]}',
    b'{"clientid":1,"adds":[{"group":"g@RUN@c","unique":"Bob"},{"group":"g@RUN@c","unique":"Bob"}]}',
    b'{"clientid":2,"adds":[{"group":"g@RUN@c","unique":"Bob","unique_for":60000}],"deletes":[@ID2@]}',
    b'{"clientid":1,"adds":[{"group":"other","id":@ID0@,"unique":"Ann"}],"deletes":[@ID0@]}',
    b'{"clientid":1,"adds":[{"group":"g@RUN@c","unique":""},{"group":"g@RUN@c","unique_for":1}]}',
    b'{"clientid":1,"updates":[{"id":@ID0@,"data":"\\u00e9"}],"key":"k@RUN@"}',
    b'{"clientid":1,"updates":[{"id":@ID2@,"keep":true,"timespec":-5000}]}',
    b'{"clientid":1,"updates":[{"id":@ID3@,"release":true}]}',
]
ODD_BODIES = [
    b"",
    b" ",
    b"null",
    b"[]",
    b"{}",
    b"\xef\xbb\xbf{}",
    b'{"clientid":1,"clientid":2,"deletes":[@ID0@]}',
    b'{"clientid":1,"deletes":[@ID0@],"deletes":[@ID0@]}',
    b'{"deletes":[@ID0@],"deletes":[@ID0@]}',
    b'{"clientid":1.0,"deletes":[@ID0@]}',
    b'{"clientid":1,"deletes":[1e3]}',
    b'{"clientid":-0,"deletes":[-0]}',
    b'{"clientid":01,"deletes":[@ID0@]}',
    b'{"clientid":"1","deletes":[@ID0@]}',
    b'{"clientid":true,"deletes":[@ID0@]}',
    b'{"clientid":9223372036854775807,"deletes":[9223372036854775807]}',
    b'{"clientid":9223372036854775808,"deletes":[-9223372036854775809]}',
    b'{"clientid":1,"deletes":[' + b"9" * 5_000 + b"]}",
    b'{"clientid":1,"deletes":[NaN]}',
    b'{"clientid":1,"deletes":[Infinity]}',
    b'{"clientid":1,"deletes":[@ID0@],}',
    b'{"clientid":1,"deletes":[@ID0@]}x',
    b'\xa0{"clientid":1,"deletes":[@ID0@]}',
    b'{"clientid":1,\x0c"deletes":[@ID0@]}',
    b'{"client\\u0069d":1,"deletes":[@ID0@]}',
    b'{"client\\u0069d":1,"clientid":2,"deletes":[@ID0@]}',
    b'{"clientid":1,"deletes":"@ID0@"}',
    b'{"clientid":1,"deletes":[[]]}',
    b'{"clientid":1,"deletes":{}}',
    b'{"clientid":1,"Deletes":[@ID0@]}',
    b'{"clientid":1,"group":"\\ud800"}',
    b'{"clientid":1,"group":"\xff"}',
    b'{"clientid":1,"group":"a\\u0000"}',
    b'{"clientid":1,"group":"' + b"g" * 256 + b'"}',
    b'{"clientid":1,"group":"a","limit":0}',
    b'{"clientid":1,"group":"a","limit":1001,"wait":60001}',
    b'{"clientid":1,"group":"a","groups":["b"]}',
    b'{"clientid":1,"groups":[]}',
    b'{"clientid":1,"group":"a","nobody":1}',
    b'{"clientid":1,"adds":[{"group":"","data":1}]}',
    b"[" * 3_000,
    b'{"clientid":1,"deletes":[' + b"1," * 10_000 + b"1]}",
    b'{"clientid":1,"adds":[{"group":"g@RUN@c","data":"' + b"x" * 20_000 + b'"}]}',
]

ODD_LINES = [
    *(b"POST /claim HTTP/1.0", b"post /claim HTTP/1.1", b"POST /claim?a=b HTTP/1.1", b"POST /claim/ HTTP/1.1"),
    *(b"POST  /claim HTTP/1.1", b"PUT /update HTTP/1.1", b"GET /healthz HTTP/1.1", b"OPTIONS /claim HTTP/1.1"),
    *(b"POST http://localhost/claim HTTP/1.1", b"POST /%63laim HTTP/1.1", b"POST /claim HTTP/1.1 ", b"POST /claim"),
]
HARMLESS = [
    *(b"Host: localhost", b"User-Agent: odd (1; 2)", b"Accept: */*", b"Content-Type: application/json"),
    *(b"Content-Type: text/plain", b"Connection: keep-alive", b"connection: Keep-Alive", b"X-Request-ID: @RUN@-1"),
    *(b"traceparent: 00-aa-bb-01", b"X-Forwarded-For: 10.1.2.3, 10.0.0.1", b"X-Forwarded-For: 1", b"Date: now"),
    *(b"Idempotency-Key: k@RUN@", b"idempotency-key: other-@RUN@", b"Origin: http://evil.example", b"x-real-ip:"),
]
ODD_HEADERS = [
    *(b"Expect: 100-continue", b"Connection: close", b"Connection: keep-alive, close", b"Connection: Upgrade"),
    *(b"Upgrade: h2c", b"Transfer-Encoding: identity", b"Content-Encoding: gzip", b"Content-Encoding: identity"),
    *(b"Cookie: sessionid=1", b"Idempotency-Key: second-@RUN@", b"Idempotency-Key: " + b"k" * 256, b"Idempotency-Key:"),
    *(
        b"Idempotency-Key: \xe9@RUN@",
        b"Idempotency_Key: 1@RUN@",
        b"Authorization: Bearer ann",
        b"Authorization: Basic YTpi",
    ),
    *(b"Content-Length: 5", b"Content-Length: 0", b"Content-Length : 5", b"content_length: 5", b"X: a\r\n folded"),
    *(b"X-Request-ID: a\r\n Transfer-Encoding: chunked", b"X-Request-ID: a\nTransfer-Encoding: chunked", b"no colon"),
    *(b"X-Request-ID: \x00", b"X-Request-ID: \x7f\xff", b": empty", b"X y: z", b"X-Long: " + b"x" * 1_000),
    *(b"X-Forwarded-For: 1\r\nContent-Length: 3", b"Daphne-Root-Path: /x", b"Proxy-Connection: close", b"TE: trailers"),
]
LENGTHS = [b"Content-Length: %d", b"content-length:%d"]
ODD_LENGTHS = [
    *(b"", b"CONTENT-LENGTH: 0%d", b"Content-Length: +%d", b"Content-Length:  %d ", b"Content-Length: %d, %d"),
    *(b"Content-Length: %d\r\nContent-Length: %d", b"Content-Length: 1%d", b"Content-Length: 3"),
]


@dataclass(frozen=True)
class Sent:
    """What is sent over one connection: each part in one piece, or not before all else is answered."""

    parts: tuple[tuple[bytes, ...], ...]


@st.composite
def odd_bodies(draw: st.DrawFn) -> bytes:
    """A good body with a few bytes more, fewer or changed."""
    body = draw(st.sampled_from([*CLAIMS, *UPDATES]))
    for _ in range(draw(st.integers(1, 2))):
        at, taken = draw(st.integers(0, len(body))), draw(st.integers(0, 2))
        more = draw(st.sampled_from([b"", b'"', b",", b"0", b"9" * 20, b".0", b"e1", b" ", b"\\", b"null", b"\xc3"]))
        body = body[:at] + more + body[at + taken :]
    return body


def now_and_then() -> st.SearchStrategy[bool]:
    return st.sampled_from([False] * 5 + [True])


@st.composite
def requests(draw: st.DrawFn, *, is_good: bool = False) -> bytes:
    def is_odd() -> bool:
        return not is_good and draw(now_and_then())

    path, bodies = draw(st.sampled_from([(b"claim", CLAIMS), (b"update", UPDATES)]))
    line = draw(st.sampled_from(ODD_LINES)) if is_odd() else b"POST /%b HTTP/1.1" % path
    body = draw(st.one_of(st.sampled_from(ODD_BODIES), odd_bodies()) if is_odd() else st.sampled_from(bodies))
    own = draw(st.lists(st.sampled_from(HARMLESS), max_size=4, unique_by=lambda line: line.partition(b":")[0].lower()))
    token = draw(st.sampled_from(TOKENS))
    own.append(draw(st.sampled_from([b"Authorization: Bearer ", b"authorization:bearer "])) + b"<" + token + b">")
    own.append(draw(st.sampled_from(ODD_LENGTHS if is_odd() else LENGTHS)).replace(b"%d", b"@LENGTH@"))
    if is_odd():
        # Two empty keys make the key ",", which would be the same in every run.
        own += draw(st.lists(st.sampled_from(ODD_HEADERS), min_size=1, max_size=2, unique=True))
    head = b"\r\n".join([line, *draw(st.permutations([line for line in own if line]))])
    return head + b"\r\n\r\n@BODY@" + body + b"@END@"


@st.composite
def sendings(draw: st.DrawFn) -> Sent:
    """A few requests one after another, now and then two in one piece, or one that is cut anywhere."""
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        whole = b"".join(draw(st.lists(requests(), min_size=1, max_size=2 if draw(now_and_then()) else 1)))
        places = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=3 if draw(now_and_then()) else 0)))
        bounds = zip([0, *places], [*places, len(whole)], strict=True)
        parts.append(tuple(whole[start:end] for start, end in bounds))
    return Sent(tuple(parts))


def filled_in(whole: bytes, secrets: dict[bytes, bytes], run: bytes, ids: Sequence[int]) -> bytes:
    """What is sent, with the groups and tasks of a run. Lengths are those of the bodies, where they are said."""

    def framed(found: re.Match[bytes]) -> bytes:
        return found[1].replace(b"@LENGTH@", b"%d" % len(found[2])) + found[2]

    for place, task_id in zip(IDS, ids, strict=True):
        whole = whole.replace(place, b"%d" % task_id)
    whole = whole.replace(RUN, run)
    for name, secret in secrets.items():
        whole = whole.replace(b"<%b>" % name, secret)
    return re.sub(rb"((?:(?!@BODY@).)*)@BODY@((?:(?!@END@).)*)@END@", framed, whole, flags=re.DOTALL)


def shown(sent: bytes, run: bytes, ids: Sequence[int]) -> bytes:
    """The answers, with what differs from run to run named as in the requests. All of it has as many bytes."""
    names = {b"%d" % task_id: place for task_id, place in zip(ids, IDS, strict=True)}
    sent = re.sub(rb"(?im)^date: .*\r$", b"date: now\r", sent.replace(run, RUN))
    sent = re.sub(rb"\b\d{13}\b", b"TIME", sent)
    sent = re.sub(rb'"request_id": "\w+"', b'"request_id": "NUMBER"', sent)
    return re.sub(rb"\b\d{7,12}\b", lambda found: names.setdefault(found[0], b"@NEW%d@" % len(names)), sent)


class Comparison:
    """Sends the same twice: with and without a lane."""

    def __init__(self, served: Any) -> None:
        self._served = served
        self.lane = Lane()
        made = {
            b"ann": tokens.create("Ann", Scope.WORK),
            b"bound": tokens.create("Bound", Scope.WORK, clients=[BOB]),
            b"reader": tokens.create("Reader", Scope.READ),
            b"within": tokens.create("Within", Scope.WORK, ["g*"]),
        }
        self._secrets = {name: secret.encode() for name, (_, secret) in made.items()} | {b"wrong": b"ts_wrong"}

    def of(self, sent: Sent, *, in_a_hurry: bool = False) -> None:
        self.lane.forget()
        long_way = self._served.run(self._run(sent, None, in_a_hurry))
        while_learning = self._served.run(self._run(sent, self.lane, in_a_hurry))
        learnt = self._served.run(self._run(sent, self.lane, in_a_hurry))
        assert while_learning == long_way
        assert learnt == long_way

    async def _run(self, sent: Sent, lane: Lane | None, in_a_hurry: bool) -> tuple[bytes, bool]:
        run = b"%d" % next(runs)
        ids = await self._tasks(run.decode())
        connection = Connection(self._served, lane)
        for part in sent.parts:
            # Filled in as a whole: a cut may be within a name.
            place, whole = 0, filled_in(b"".join(part), self._secrets, run, ids)
            scale = len(whole) / max(1, len(b"".join(part)))
            ends = [round(sum(map(len, part[: number + 1])) * scale) for number in range(len(part) - 1)]
            for end in [*ends, len(whole)]:
                connection.receive(whole[place:end])
                place = end
                if not in_a_hurry:
                    await connection.answered()
        await connection.answered()
        answers, is_closed = connection.sent, connection.transport.is_closed
        await connection.close()
        return shown(answers, run, ids), is_closed

    async def _tasks(self, run: str) -> list[int]:
        """One that anyone may take, in two groups; one that Ann has, one that Bob has, and one for later."""
        adds = [NewTask(group=f"g{run}{group}", data=group.encode()) for group in "abde"]
        later = NewTask(group=f"g{run}f", timespec_ms=-3_600_000)
        added = await Task.objects.acommit(owner=ANN, adds=[*adds, later])
        [ann] = await Task.objects.aclaim(f"g{run}d", owner=ANN)
        [bob] = await Task.objects.aclaim(f"g{run}e", owner=BOB)
        return [added[0].id, added[1].id, ann.id, bob.id, added[4].id]


@pytest.fixture(params=["served", "served_by_uvicorn"])
def comparison(request, settings):
    settings.TASKSTORE_WRONG_TOKEN_RATE = 0
    statement = database.dialect_of("default").go_on_after("ids", FIRST_ID)
    with connection.cursor() as cursor:
        cursor.execute(*statement)
    return Comparison(request.getfixturevalue(request.param))


@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(sent=sendings())
def test_both_ways_answer_the_same(comparison, sent):
    comparison.of(sent)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(wholes=st.lists(requests(is_good=True), min_size=2, max_size=4))
def test_both_ways_answer_the_same_to_a_client_that_does_not_wait(comparison, wholes):
    comparison.of(Sent(tuple((whole,) for whole in wholes)), in_a_hurry=True)


@pytest.mark.parametrize("is_claim", [True, False])
def test_the_lane_takes_what_is_plain(comparison, is_claim):
    body = CLAIMS[0] if is_claim else b'{"clientid":1,"deletes":[@ID2@]}'
    head = b"POST /%b HTTP/1.1\r\nAuthorization: Bearer <ann>\r\n" % (b"claim" if is_claim else b"update")
    whole = head + b"Content-Length: @LENGTH@\r\n\r\n@BODY@" + body + b"@END@"
    comparison.of(Sent(((whole,), (whole,), (whole[:150], whole[150:]))))
    assert comparison.lane.taken == 5  # All but the first.
