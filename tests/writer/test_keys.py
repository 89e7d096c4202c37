"""Requests that are sent again with their key."""

import asyncio

import pytest

from tasks_app.core.operations import Claim, Commit, ResendKey
from tasks_app.models import Task
from taskstore.errors import CommitRefused
from taskstore.types.tasks import NewTask
from tests.behaviour.people import ANN, BOB

KEY = ResendKey("ann/1", "the digest of the request")


def adding(key=KEY, **more):
    return Commit(owner=ANN, adds=(NewTask(group="mail", **more), NewTask(group="mail")), key=key)


def test_also_within_one_batch(play):
    async def scenario(writer):
        answers = await asyncio.gather(*(writer.submit(adding()) for _ in range(20)))
        assert all(answer == answers[0] for answer in answers)

    play(scenario)
    assert Task.objects.count() == 2


def test_also_when_what_was_added_is_gone(play):
    async def scenario(writer):
        first = await writer.submit(adding())
        await writer.submit(Commit(owner=ANN, deletes=tuple(task.id for task in first)))
        assert await writer.submit(adding()) == first

    play(scenario)
    assert Task.objects.count() == 0


def test_a_refusal_is_kept_too(play):
    async def scenario(writer):
        request = Commit(owner=ANN, deletes=(-1,), depends=(-2,), key=KEY)
        refusals = []
        for _ in range(2):
            with pytest.raises(CommitRefused) as refused:
                await writer.submit(request)
            refusals.append(refused.value.refusal)
        assert refusals[0] == refusals[1]

    play(scenario)


def test_a_claim_that_found_nothing_is_not_kept(play):
    async def scenario(writer):
        request = Claim(groups=("mail",), owner=BOB, key=KEY)
        assert await writer.submit(request) == []
        await writer.submit(adding(key=None))
        first = await writer.submit(request)
        assert len(first) == 1
        assert await writer.submit(request) == first

    play(scenario)


def test_it_holds_without_the_writer(transactional_db):
    first = Task.objects.perform(adding())
    assert [task.id for task in Task.objects.perform(adding())] == [task.id for task in first]
