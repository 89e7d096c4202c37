"""A server that is asked for something, and takes longer than anybody would wait."""

import asyncio

import psycopg
import pytest

from tasks_app.database import postgresql_pipeline
from tasks_app.database.postgresql_pipeline import Pipeline
from tasks_app.writer.connection import parameters_of
from tests.behaviour.databases import only_postgresql

pytestmark = [only_postgresql, pytest.mark.django_db(transaction=True)]

SLEEP = [("SELECT pg_sleep(60)::text", ())]


async def patient(within_s, *, prepare=lambda pipeline: None):
    """What comes of a minute's sleep, and of a statement after it."""
    pipeline = await Pipeline.connect(parameters_of("default"))
    prepare(pipeline)
    try:
        with pytest.raises(psycopg.OperationalError) as caught:
            await pipeline.run(SLEEP, within_s)
        return caught.value, pipeline.is_closed
    finally:
        await pipeline.close()


def test_it_is_cancelled():
    error, is_closed = asyncio.run(patient(0.1))
    assert isinstance(error, psycopg.errors.QueryCanceled)
    assert not is_closed


def test_a_server_that_does_not_even_hear_of_that_is_left(monkeypatch):
    monkeypatch.setattr(postgresql_pipeline, "CANCELLED_WITHIN_S", 0.1)

    async def nobody_hears(**_):
        raise psycopg.OperationalError("no answer")

    def silence(pipeline):
        monkeypatch.setattr(pipeline._connection, "cancel_safe", nobody_hears)

    error, is_closed = asyncio.run(patient(0.1, prepare=silence))
    assert error.sqlstate is None
    assert is_closed


def test_each_wait_has_an_end_of_its_own():
    async def scenario():
        pipeline = await Pipeline.connect(parameters_of("default"))
        try:
            await pipeline.run([("SELECT 1::text", ())], 0.05)
            await pipeline.run([("SELECT pg_sleep(0.2)::text", ())])  # No limit: that of the one before is over.
            await pipeline.run([("SELECT 1::text", ())], 3_600)
            with pytest.raises(psycopg.errors.QueryCanceled):
                await pipeline.run(SLEEP, 0.1)
        finally:
            await pipeline.close()

    asyncio.run(scenario())
