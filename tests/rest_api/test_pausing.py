import asyncio

import pytest

from tasks_app.models import PausedGroup, Scope

from .api import Api
from .workers import Worker, on_a_loop, until_waiting


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
