"""Claims that wait until there is something."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from tasks_app.access import tokens
from tasks_app.control.cancelling import watch
from tasks_app.models import PausedGroup, Scope, Task, Token
from tasks_app.rest_api.authentication import NO_TOKEN
from taskstore.types.tasks import NewTask

from .api import Api
from .workers import Worker, on_a_loop, until_waiting

NOTHING: tuple[int, dict[str, Any]] = (200, {"tasks": [], "error": None})
LONG_BEFORE_A_LOOK_S = 0.5  # Which comes once a second.


@pytest.fixture
def worker(server):
    return Worker(server.url, Api().secret)


@on_a_loop
async def test_it_takes_a_task_that_is_added_meanwhile(worker):
    assert await shortest_wait_s(worker, lambda: worker.add(data="1")) < LONG_BEFORE_A_LOOK_S


@on_a_loop
async def test_it_takes_a_task_that_a_person_adds_in_a_transaction(worker):
    add = partial(asyncio.to_thread, add_in_a_transaction)
    assert await shortest_wait_s(worker, add) < LONG_BEFORE_A_LOOK_S


async def shortest_wait_s(worker: Worker, add: Callable[[], Awaitable[Any]]) -> float:
    """From adding a task to the claim that got it; of a few times, as the machine may be busy."""
    took_s = []
    for _ in range(3):
        claim = worker.begin_claim()
        await until_waiting(1)
        started_s = time.monotonic()
        added = await add()
        status, answer = await claim
        took_s.append(time.monotonic() - started_s)
        assert (status, [task["origin"] for task in answer["tasks"]]) == (200, [added["id"]])
    return min(took_s)


def add_in_a_transaction() -> dict[str, Any]:
    try:
        with transaction.atomic():
            return {"id": Task.objects.commit(owner=0, adds=[NewTask(group="mail")])[0].id}
    finally:
        connection.close()


@on_a_loop
async def test_it_is_refused_when_what_it_depends_on_goes(worker):
    configuration = await worker.add("reports")
    claim = worker.begin_claim(depends=[configuration["id"]])
    await until_waiting(1)
    await worker.post("/update", {"clientid": 1, "deletes": [configuration["id"]]})
    status, answer = await claim
    assert (status, answer["error"]["depends"]) == (200, [configuration["id"]])


@pytest.fixture
def worker_of_mail(server):
    return Worker(server.url, Api(Scope.WORK, ("mail",)).secret)


@on_a_loop
async def test_it_is_forbidden_to_wait_for_a_foreign_group(worker_of_mail):
    status, _ = await worker_of_mail.claim(groups=["mail", "reports"], wait=60_000)
    assert status == 403


@on_a_loop
async def test_a_claim_whose_token_is_revoked_meanwhile_gets_nothing(worker, monkeypatch):
    monkeypatch.setattr(tokens, "LOOK_EVERY_S", 0.05)
    claims = [worker.begin_claim() for _ in range(3)]
    await until_waiting(3)
    await asyncio.to_thread(revoke_all)
    for claim in claims:
        status, answer = await claim
        assert (status, answer["detail"]) == (401, NO_TOKEN)
    await until_waiting(0)


@on_a_loop
async def test_a_valid_token_that_begins_to_wait_amid_a_look_goes_on_waiting(worker, server, monkeypatch):
    looked_up = tokens._valid
    others = Worker(server.url, await asyncio.to_thread(new_secret))

    def look_up_slowly(pks):
        time.sleep(0.3)
        return looked_up(pks)

    monkeypatch.setattr(tokens, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(tokens, "_valid", look_up_slowly)
    first = worker.begin_claim(wait=1_500)
    await until_waiting(1)
    for _ in range(3):  # They come and go while tokens are looked up.
        await asyncio.sleep(0.15)
        assert await others.claim(wait=100) == NOTHING
    assert await first == NOTHING


@on_a_loop
async def test_a_token_that_is_to_be_looked_up_anew_just_now_is_looked_up_aside(worker, monkeypatch):
    monkeypatch.setattr(tokens, "TRUSTED_S", 0)
    monkeypatch.setattr(tokens, "is_known", lambda secret: True)  # A moment ago it was.
    for _ in range(2):
        assert (await worker.claim())[0] == 200


def new_secret() -> str:
    try:
        return Api().secret
    finally:
        connection.close()


@on_a_loop
async def test_a_look_for_cancelled_tasks_ends_with_its_token_and_with_its_client(worker, monkeypatch):
    monkeypatch.setattr(tokens, "LOOK_EVERY_S", 0.05)
    # Clients of which no other test has cancelled a task: this process remembers that for a minute.
    polls = [asyncio.ensure_future(worker.get(f"/cancelled?clientid={number}&wait=20000")) for number in (771, 772)]
    await until_watching(2)
    polls[0].cancel()  # Its client goes.
    await until_watching(1)
    await asyncio.to_thread(revoke_all)
    status, answer = await polls[1]
    assert (status, answer["detail"]) == (401, NO_TOKEN)


async def until_watching(number: int) -> None:
    async with asyncio.timeout(5):
        while sum(len(waiting.clients) for waiting in watch._waiting.values()) != number:  # noqa: ASYNC110 - it tells nobody when that changes.
            await asyncio.sleep(0.01)


def revoke_all() -> None:
    try:
        for token in Token.objects.all():
            tokens.revoke(token)
    finally:
        connection.close()


@on_a_loop
async def test_one_with_a_valid_token_goes_on_waiting_through_every_look(worker, monkeypatch):
    monkeypatch.setattr(tokens, "LOOK_EVERY_S", 0.02)
    claim = worker.begin_claim()
    await until_waiting(1)
    await asyncio.sleep(0.2)
    added = await worker.add()
    status, answer = await claim
    assert (status, [task["origin"] for task in answer["tasks"]]) == (200, [added["id"]])


# ----


def test_claims_find_nothing_until_it_is_resumed(operator):
    task = operator.add()
    status, answer = operator.post("/groups/mail/pause", {"reason": "the mail server is down"})
    assert (status, answer["group"]) == (200, "mail")
    assert operator.claimed() == []
    assert operator.post("/groups/mail/resume", {}) == (200, {"group": "mail", "paused": None})
    assert [claimed["origin"] for claimed in operator.claimed()] == [task["id"]]


def test_the_answer_says_who_paused_it_when_and_why(operator):
    _, answer = operator.post("/groups/mail/pause", {"reason": "the mail server is down"})
    paused = PausedGroup.objects.get()
    at_ms = round(paused.at.timestamp() * 1000)
    assert answer["paused"] == {"by": "token:Ann", "at": at_ms, "reason": "the mail server is down"}


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_it_is_forbidden_to_workers_and_in_foreign_groups(db, verb):
    assert Api(Scope.WORK).post(f"/groups/mail/{verb}", {})[0] == 403
    assert Api(Scope.OPERATE, ("pay/*",)).post(f"/groups/payroll/{verb}", {})[0] == 403
    assert not PausedGroup.objects.exists()


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"reason": 1}, "reason"),
        ({"reason": "x" * 1_001}, "reason"),
        ({"reason": "a\0"}, "reason"),
        ({"why": ""}, "why"),
    ],
)
def test_a_wrong_field_is_named(operator, verb, body, field):
    status, answer = operator.post(f"/groups/mail/{verb}", body)
    assert (status, list(answer["errors"])) == (400, [field])
    assert not PausedGroup.objects.exists()


def test_resume_wakes_claims_that_wait_at_once(server):
    operator = Worker(server.url, Api(Scope.OPERATE).secret)

    @on_a_loop
    async def story():
        task = await operator.add()
        await operator.post("/groups/mail/pause", {})
        claim = operator.begin_claim()
        await until_waiting(1)
        await operator.post("/groups/mail/resume", {})
        async with asyncio.timeout(0.8):  # The look once a second comes later.
            _, answer = await claim
        assert answer["tasks"][0]["origin"] == task["id"]

    story()
