"""The writer's connection where a pooler gives each transaction another server process."""

import asyncio

import psycopg
import pytest

from tasks_app.database.postgresql_pipeline import Pipeline
from tasks_app.writer.connection import parameters_of

from ..behaviour.databases import only_postgresql


@only_postgresql
@pytest.mark.parametrize(("prepares", "count"), [(True, 2), (False, 0)])
def test_where_nothing_may_be_prepared_statements_are_sent_whole(transactional_db, prepares, count):
    async def statements():
        connection = await psycopg.AsyncConnection.connect(**parameters_of("default"), autocommit=True)
        pipeline = Pipeline(connection, prepares=prepares)
        try:
            answers = await pipeline.run([("SELECT %s::int", [number]) for number in (1, 2)])
            [[(names,)]] = await pipeline.run([("SELECT count(*) FROM pg_prepared_statements", [])])
        finally:
            await pipeline.close()
        return answers, names

    assert asyncio.run(statements()) == ([[(1,)], [(2,)]], count)


@only_postgresql
def test_on_a_server_of_its_own_they_are_prepared(transactional_db):
    async def prepares():
        pipeline = await Pipeline.connect(parameters_of("default"))
        await pipeline.close()
        return pipeline.prepares

    assert asyncio.run(prepares())
