"""The fast lane keeps to what holds on the long way: tokens, limits, clients that go, and the end of the server."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection as db_connection
from django.utils import timezone

from tasks_app import database
from tasks_app.access import tokens
from tasks_app.core.operations import Claim, Commit, Supply
from tasks_app.models import Scope, Task, Token
from tasks_app.rest_api import answers, hot_path, lane
from tasks_app.rest_api.lane import LONGEST_KNOWN, AskedOnLane, Lane
from tasks_app.writer.writer import Writer, running
from taskstore.types.tasks import NewTask
from taskstore_project.serving.connection import LONGEST_HEAD, MOST_HELD
from taskstore_project.serving.uvicorn_server import Protocol
from tests.served import PATIENCE_S

from .api import ANN, BOB, Clock
from .connections import Connection

pytestmark = pytest.mark.usefixtures("transactional_db")

CLAIM = b'{"clientid":1,"group":"mail"}'
NOTHING = b'{"tasks":[],"error":null}'


def request_of(secret: str, body: bytes = CLAIM, path: bytes = b"/claim", more: bytes = b"") -> bytes:
    head = b"POST %b HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer %b\r\n%b" % (path, secret.encode(), more)
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def the_writer() -> Writer:
    found = running("default")
    assert found
    return found


class Worker:
    """A client of a server that is entered, with a token; the lane has learnt its heads."""

    def __init__(self, served: Any) -> None:
        self.served = served
        self.lane = Lane()
        self.token, self.secret = tokens.create("Ann", Scope.WORK)
        for path in (b"/claim", b"/update"):
            assert self.ask(b"{}", path)[0] == 400
        assert self.lane.taken == 0

    def ask(self, body: bytes = CLAIM, path: bytes = b"/claim", more: bytes = b"") -> tuple[int, Any]:
        """Status and value of the answer to a request on a connection of its own."""
        return self.served.run(self._asked(request_of(self.secret, body, path, more)))  # type: ignore[no-any-return]

    async def _asked(self, whole: bytes) -> tuple[int, Any]:
        connection = self.connection()
        connection.receive(whole)
        await connection.answered()
        head, _, body = connection.sent.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n").partition(b"\r\n\r\n")
        await connection.close()
        return int(head.split()[1]), json.loads(body)

    def is_taken(self, *args: Any, **more: Any) -> bool:
        before = self.lane.taken
        status, _ = self.ask(*args, **more)
        assert status == 200
        return self.lane.taken > before

    def connection(self) -> Connection:
        return Connection(self.served, self.lane)

    def line(self) -> int:
        """How many claims wait for "mail"."""
        return len(the_writer()._waiting._by_group.get("mail", ()))

    async def add_beside(self) -> int:
        """Add a task without the writer, which only hears of it when it looks."""

        def add() -> int:
            try:
                [task] = database.run(Commit(owner=BOB, adds=(NewTask(group="mail"),)), "default")
                return task.id
            finally:
                db_connection.close()

        return await sync_to_async(add)()

    async def add(self, **fields: Any) -> int:
        [task] = await Task.objects.acommit(owner=0, adds=[NewTask(group="mail", **fields)])
        return task.id


@pytest.fixture(params=["served", "served_by_uvicorn"])
def worker(request):
    return Worker(request.getfixturevalue(request.param))


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(tokens, "time", clock)
    return clock


# ---- Tokens and limits


@pytest.mark.parametrize("setting", ["TASKSTORE_TOKEN_RATE", "TASKSTORE_ADDRESS_RATE"])
def test_where_rates_are_limited_all_are_counted(worker, settings, setting):
    assert worker.is_taken()
    setattr(settings, setting, 1)
    assert [worker.ask()[0] for _ in range(2)] == [200, 429]


def test_a_revoked_token_opens_nothing_after_the_same_time(clock, worker):
    assert worker.is_taken()
    tokens.revoke(worker.token)
    assert worker.is_taken()
    clock.now_s += tokens.TRUSTED_S + 0.1
    assert worker.ask()[0] == 401


def test_an_expired_token_opens_nothing_at_once(worker, monkeypatch):
    worker.token, worker.secret = tokens.create("Bob", Scope.WORK, expires_at=timezone.now() + timedelta(hours=1))
    worker.ask()
    assert worker.is_taken()
    later = timezone.now() + timedelta(hours=1)
    monkeypatch.setattr("django.utils.timezone.now", lambda: later)
    assert worker.ask()[0] == 401


def test_what_a_token_may_do_follows_its_next_look_up(clock, worker):
    assert worker.is_taken()
    worker.token.__class__.objects.update(groups=["reports"])
    clock.now_s += tokens.TRUSTED_S + 0.1
    for _ in range(2):
        assert worker.ask()[0] == 403


def test_without_tokens_it_takes_nothing(worker, settings):
    settings.TASKSTORE_NO_AUTH = True
    status, answer = worker.ask()
    assert (status, list(answer["errors"])) == (400, ["Host"])


def test_it_takes_no_larger_body_than_the_setting_allows(worker, settings):
    settings.TASKSTORE_MAX_REQUEST_BYTES = len(CLAIM) - 1
    assert worker.ask()[0] == 413


# ---- Heads


def test_it_refuses_a_key_that_occurs_twice_in_a_body(worker):
    ids = [worker.served.run(worker.add()) for _ in range(2)]
    status, answer = worker.ask(b'{"clientid":0,"deletes":[%d],"deletes":[%d]}' % (*ids,), b"/update")
    assert status == 400, answer
    assert "deletes" in answer["errors"]["body"][0]
    assert Task.objects.count() == 2


@pytest.mark.parametrize(
    "more",
    [
        b"Connection: close\r\n",
        b"Expect: 100-continue\r\n",
        b"Cookie: a=b\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"X-Folded: a\r\n b\r\n",
        b"X-Long: " + b"x" * LONGEST_KNOWN + b"\r\n",
        b"X-Under_score: a\r\n",
    ],
)
def test_it_never_learns_an_unusual_head(worker, more):
    for _ in range(3):
        worker.ask(more=more)
    assert worker.lane.taken == 0


def test_it_keeps_so_many_heads_and_no_more(worker):
    worker.lane = Lane(most_known=3)
    for number in range(20):
        worker.ask(more=b"X-Number: %d\r\n" % number, body=b'{"clientid":%d,"group":"mail"}' % number)
        assert len(worker.lane._heads) <= 3
        assert sum(len(grant.claims) for grant in worker.lane._grants.values()) <= 3
    assert LONGEST_HEAD <= LONGEST_KNOWN


# ---- Answers


def test_it_answers_with_the_task(worker):
    task_id = worker.served.run(worker.add(data=b"letter"))
    _, answer = worker.ask()
    [task] = answer["tasks"]
    assert (task["data"], task["origin"], worker.lane.taken) == ("letter", task_id, 1)


def test_a_large_answer_is_made_beside_the_loop(worker, monkeypatch):
    worker.served.run(worker.add(data=b"letter"))
    monkeypatch.setattr(answers, "BYTES_AT_ONCE", 1)
    _, answer = worker.ask()
    assert (answer["tasks"][0]["data"], worker.lane.taken) == ("letter", 1)


def test_a_key_gets_the_same_answer_again(worker):
    worker.served.run(worker.add())
    first, again = [worker.ask(more=b"Idempotency-Key: k1\r\n") for _ in range(2)]
    assert first == again
    assert first[1]["tasks"]
    assert worker.ask(b'{"clientid":2,"group":"mail"}', more=b"Idempotency-Key: k1\r\n")[0] == 409
    worker.lane.forget()
    assert worker.ask(more=b"Idempotency-Key: k1\r\n") == first
    assert worker.lane.taken == 3


def test_an_unexpected_error_has_a_number_in_the_log(worker, monkeypatch, caplog):
    monkeypatch.setattr(Writer, "take", lambda writer, asked: asked.fail(RuntimeError("secret")))
    with caplog.at_level(logging.ERROR):
        status, answer = worker.ask()
    assert (status, answer.keys(), worker.lane.taken) == (500, {"detail", "request_id"}, 1)
    [record] = [record for record in caplog.records if answer["request_id"] in record.getMessage()]
    assert record.getMessage().endswith("failed: POST /claim")
    assert "secret" in str(record.exc_info)


def test_an_answer_that_was_prepared_for_other_tasks_is_not_sent():
    answers: list[Any] = []

    class Kept:
        has_gone = False
        answer = answers.append

        def when_gone(self, do: Any) -> None:
            pass

        async def answer_in_pieces(self, answer: Any) -> None:
            raise AssertionError(answer)

    asked = AskedOnLane(Claim(groups=("mail",), owner=ANN), Kept(), hot_path.ClaimView, Token())
    asked.prepare([])
    asked.succeed([])
    first: list[Any] = []
    asked.prepare(first)
    asked.succeed(first)
    assert [answer.body for answer in answers] == [NOTHING, NOTHING]
    assert asked._prepared
    assert asked._prepared[0] is first


# ---- Claims that wait

WAITING = b'{"clientid":1,"group":"mail","wait":60000}'


@pytest.fixture
def waits(worker):
    """Begins a claim that waits, as often as it is called, and returns its connection."""

    async def begin():
        count, connection = worker.line(), worker.connection()
        connection.receive(request_of(worker.secret, WAITING))
        await until(lambda: worker.line() == count + 1)
        return connection

    return begin


async def until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - Nobody tells when that changes.
            await asyncio.sleep(0.001)


def test_a_claim_that_waits_gets_what_is_added(worker, waits):
    async def scenario():
        first, second = await waits(), await waits()
        task_id = await worker.add()
        await first.answered()
        assert second.is_answering
        await second.close()
        return task_id, first.sent

    task_id, sent = worker.served.run(scenario())
    assert b'"origin":%d' % task_id in sent
    assert worker.lane.taken == 2


def test_those_who_are_woken_for_nothing_keep_their_places(worker, waits, monkeypatch):
    """Two find nothing, as somebody else was quicker; who came first is first again."""

    async def scenario():
        first, second, third = await waits(), await waits(), await waits()
        writer = the_writer()
        tried = writer.begun
        writer.note(Supply(available={"mail": 2}))
        await until(lambda: writer.begun == tried + 2 and worker.line() == 3)
        await worker.add()
        await first.answered()
        assert second.is_answering
        assert third.is_answering
        await second.close()
        await third.close()

    worker.served.run(scenario())


def test_who_goes_leaves_the_line(worker, waits):
    async def scenario():
        connection = await waits()
        await connection.close()
        await until(lambda: worker.line() == 0)
        return await worker.add()

    task_id = worker.served.run(scenario())
    assert Task.objects.get().id == task_id


def test_a_claim_that_waits_ends_with_its_token_as_on_the_long_way(worker, waits, monkeypatch):
    monkeypatch.setattr(tokens, "LOOK_EVERY_S", 0.05)

    async def scenario(lane):
        worker.lane = lane
        connection = await waits()
        await sync_to_async(revoke)(worker.token)
        await connection.answered()
        assert worker.line() == 0
        await sync_to_async(Token.objects.update)(revoked_at=None)
        await connection.close()
        return re.sub(rb"(?i)date: [^\r]*\r\n", b"", connection.sent)

    def revoke(token):
        try:
            tokens.revoke(token)
        finally:
            db_connection.close()

    quick, long = worker.served.run(scenario(worker.lane)), worker.served.run(scenario(Lane(most_known=0)))
    assert quick.split(b"\r\n")[0].split()[1] == b"401"
    assert quick == long


def test_what_it_takes_while_its_token_is_refused_is_given_back(worker, waits, monkeypatch):
    async def scenario():
        writer = the_writer()
        run = writer._connection.run

        async def refuse_meanwhile(*args, **more):
            done = await run(*args, **more)
            for refuse in [each for refusals in tokens.waiting_tokens._refusals.values() for each in refusals]:
                refuse()
            return done

        connection = await waits()
        task_id = await worker.add_beside()
        monkeypatch.setattr(writer._connection, "run", refuse_meanwhile)
        writer.look_around()
        await connection.answered()
        async with asyncio.timeout(PATIENCE_S):
            while (task := await Task.objects.aget(origin=task_id)).id < task_id + 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return connection.sent, task

    sent, task = worker.served.run(scenario())
    assert b" 401 " in sent
    assert (task.owner, task.leased_since_ms) == (0, 0)


def test_a_long_answer_that_is_being_encoded_is_the_only_one(worker, waits, monkeypatch):
    monkeypatch.setattr(lane, "is_long", lambda tasks: True)
    encode = answers.outcome_of

    async def encode_while_the_token_ends(tasks):
        for refuse in [each for refusals in tokens.waiting_tokens._refusals.values() for each in refusals]:
            refuse()
        return await encode(tasks)

    monkeypatch.setattr(lane, "outcome_of", encode_while_the_token_ends)

    async def scenario():
        connection = await waits()
        await worker.add()
        await connection.answered()
        await asyncio.sleep(0.1)
        return connection.sent

    sent = worker.served.run(scenario())
    assert sent.count(b"HTTP/1.1 ") == 1
    assert sent.startswith(b"HTTP/1.1 200 ")


def test_the_end_of_the_server_ends_the_wait(worker, waits):
    async def scenario():
        connection = await waits()
        the_writer()._waiting.give_up()
        await connection.answered()
        the_writer()._waiting._has_ended = False
        return connection.sent

    assert worker.served.run(scenario()).endswith(NOTHING)


# ---- Connections


def test_what_comes_before_the_answer_is_kept(worker):
    async def scenario():
        connection = worker.connection()
        for _ in range(3):
            connection.receive(request_of(worker.secret))
        connection.receive(request_of(worker.secret, b" " * MOST_HELD + CLAIM))
        was_paused = connection.transport.is_paused
        await connection.answered()
        assert not connection.transport.is_paused
        return connection.sent, was_paused

    sent, was_paused = worker.served.run(scenario())
    assert sent.count(b"200 OK") == sent.count(NOTHING) == 4
    assert was_paused
    assert worker.lane.taken == 1


def test_reading_goes_on_after_a_kept_request_that_the_lane_takes(worker):
    async def scenario():
        connection = worker.connection()
        connection.receive(request_of(worker.secret))
        connection.receive(request_of(worker.secret, CLAIM.ljust(MOST_HELD)))
        assert connection.transport.is_paused
        await connection.answered()
        return connection

    connection = worker.served.run(scenario())
    assert connection.sent.count(NOTHING) == worker.lane.taken == 2
    assert not connection.transport.is_paused


def test_it_waits_for_the_body(worker):
    async def scenario():
        connection = worker.connection()
        whole = request_of(worker.secret)
        for place in range(len(whole) - len(CLAIM), len(whole)):
            connection.receive(whole[place - 1 : place] if place > len(whole) - len(CLAIM) else whole[:place])
            assert connection.protocol.due is not None
        assert not connection.sent
        connection.receive(whole[-1:])
        assert connection.protocol.due is None
        await connection.answered()
        return connection.sent

    assert worker.served.run(scenario()).count(NOTHING) == 1
    assert worker.lane.taken == 1


def test_a_client_that_never_sends_the_body_is_told(worker):
    async def scenario():
        connection = worker.connection()
        connection.receive(request_of(worker.secret)[: -len(CLAIM)])
        connection.protocol.refuse_slow()
        connection.receive(CLAIM)
        await connection.answered()
        return connection.sent

    sent = worker.served.run(scenario())
    assert sent.startswith(b"HTTP/1.1 408 ")
    assert sent.count(b"HTTP/1.1") == 1


def test_a_client_that_has_gone_claims_nothing(worker):
    async def scenario():
        task_id = await worker.add()
        connection = worker.connection()
        connection.receive(request_of(worker.secret))
        await connection.close()
        await Task.objects.aclaim("reports", owner=BOB)  # What arrived before it is done by then.
        return await Task.objects.aget(id=task_id)

    assert worker.served.run(scenario()).claims == 0
    assert worker.lane.taken == 1


def test_a_commit_is_done_though_its_client_has_gone(worker):
    async def scenario():
        connection = worker.connection()
        body = b'{"clientid":1,"adds":[{"group":"mail","data":""}]}'
        connection.receive(request_of(worker.secret, body, b"/update"))
        await connection.close()
        await Task.objects.aclaim("reports", owner=BOB)
        return await Task.objects.acount()

    assert worker.served.run(scenario()) == 1
    assert worker.lane.taken == 1


def test_what_a_client_took_that_went_meanwhile_is_given_back(worker, monkeypatch):
    async def scenario():
        task_id = await worker.add()
        connection = worker.connection()
        there, run = worker.served.writer._connection, worker.served.writer._connection.run

        async def then_it_goes(*args: Any, **more: Any) -> Any:
            done = await run(*args, **more)
            await connection.close()
            return done

        monkeypatch.setattr(there, "run", then_it_goes, raising=False)
        connection.receive(request_of(worker.secret))
        async with asyncio.timeout(PATIENCE_S):
            while (task := await Task.objects.aget(origin=task_id)).id < task_id + 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        monkeypatch.undo()
        return task

    task = worker.served.run(scenario())
    assert (task.owner, task.claims, task.leased_since_ms) == (0, 1, 0)
    assert worker.lane.taken == 1


@pytest.mark.parametrize("missing", [0, 1, len(CLAIM)])
def test_at_the_end_of_the_server_it_answers_and_closes(worker, missing):
    whole = request_of(worker.secret)

    async def scenario():
        connection = worker.connection()
        connection.receive(whole[: len(whole) - missing])
        connection.protocol.end_after_answer()
        assert not connection.sent
        connection.receive(whole[len(whole) - missing :])
        await connection.answered()
        return connection

    connection = worker.served.run(scenario())
    assert connection.sent.count(b"200 OK") == connection.sent.lower().count(b"connection: close") == 1
    assert connection.transport.is_closed
    assert worker.lane.taken == (not missing)


def test_the_server_does_not_wait_for_the_rest_of_a_kept_request(worker, monkeypatch):
    kept: list[AskedOnLane] = []
    monkeypatch.setattr(Writer, "take", lambda writer, asked: kept.append(asked))

    async def scenario():
        connection = worker.connection()
        connection.receive(request_of(worker.secret))
        connection.receive(b"POST /cl")
        kept[0].succeed([])
        connection.protocol.end_after_answer()
        assert connection.sent.count(NOTHING) == 1
        async with asyncio.timeout(PATIENCE_S):
            while not connection.transport.is_closed:
                await asyncio.sleep(0.01)
                connection.protocol.close_if_idle()

    worker.served.run(scenario())


def test_a_server_that_ends_takes_nothing_more_on_the_lane(worker):
    async def scenario():
        connection = worker.connection()
        connection.protocol.end_after_answer()
        connection.receive(request_of(worker.secret))
        await connection.answered()
        return connection

    connection = worker.served.run(scenario())
    assert b"onnection: close" in connection.sent
    assert connection.transport.is_closed
    assert worker.lane.taken == 0


def test_an_idle_connection_is_closed_and_no_other(worker):
    async def scenario():
        connection = worker.connection()
        protocol = connection.protocol
        is_uvicorn = isinstance(protocol, Protocol)
        connection.receive(request_of(worker.secret))
        (protocol.timeout_keep_alive_handler if is_uvicorn else protocol.timeoutConnection)()
        assert not connection.transport.is_closed
        await connection.answered()
        assert connection.sent.count(NOTHING) == 1
        if is_uvicorn:
            assert protocol.timeout_keep_alive_task is not None
            protocol.timeout_keep_alive = 0.05
            protocol.timeout_keep_alive_handler()
        else:
            protocol.setTimeout(0.05)
        async with asyncio.timeout(PATIENCE_S):
            while not connection.transport.is_closed:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    worker.served.run(scenario())
    assert worker.lane.taken == 1


def test_a_client_that_reads_nothing_goes_the_long_way(worker):
    async def scenario():
        connection = worker.connection()
        protocol = connection.protocol
        (protocol.pause_writing if isinstance(protocol, Protocol) else protocol.pauseProducing)()
        connection.receive(request_of(worker.secret))
        assert worker.lane.taken == 0
        (protocol.resume_writing if isinstance(protocol, Protocol) else protocol.resumeProducing)()
        await connection.answered()
        assert connection.sent.count(NOTHING) == 1

    worker.served.run(scenario())
