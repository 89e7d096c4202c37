"""What server processes tell each other: seen by two of them in one process."""

import asyncio
import json
from contextlib import asynccontextmanager

import psycopg
from asgiref.sync import async_to_sync

from tasks_app.core.operations import Supply
from tasks_app.writer.connection import parameters_of
from tasks_app.writer.peers import CHANNEL, INSTANCE, LISTENER, Neighbours

from .databases import only_postgresql

pytestmark = only_postgresql
PATIENCE_S = 20


class Listening:
    """Another process, as this one sees it."""

    def __init__(self, connection):
        self.connection = connection

    async def next(self):
        [word] = [word async for word in self.connection.notifies(timeout=PATIENCE_S, stop_after=1)]
        return json.loads(word.payload)

    async def say(self, word):
        await self.connection.execute("SELECT pg_notify(%s, %s)", [CHANNEL, json.dumps(word)])


@asynccontextmanager
async def another_process():
    parameters = parameters_of("default") | {"application_name": LISTENER}
    async with await psycopg.AsyncConnection.connect(**parameters, autocommit=True) as connection:
        await connection.execute(f"LISTEN {CHANNEL}")
        yield Listening(connection)


@asynccontextmanager
async def this_process(hear=print):
    process = Neighbours("default", hear, lambda *_: None)
    try:
        yield process
    finally:
        await process.stop()


def test_others_are_told_what_there_is_to_claim_now_or_soon(transactional_db):
    async def story():
        async with another_process() as other, this_process() as process:
            process.tell(Supply(available={"mail": 3}, next_in_ms={"reports": 200, "later": 60_000}))
            return await other.next()

    assert sorted(async_to_sync(story)()["groups"]) == ["mail", "reports"]


def test_what_comes_together_is_told_together(transactional_db):
    async def story():
        async with another_process() as other, this_process() as process:
            for group in ("mail", "reports", "mail"):
                process.tell(Supply(available={group: 1}))
            return await other.next()

    assert sorted(async_to_sync(story)()["groups"]) == ["mail", "reports"]


def test_too_many_groups_are_not_named(transactional_db):
    async def story():
        async with another_process() as other, this_process() as process:
            process.tell_of(f"{number:0255}" for number in range(40))
            return await other.next()

    assert async_to_sync(story)()["groups"] is None


def test_what_others_tell_is_heard_and_what_it_says_itself_is_not(transactional_db):
    async def story():
        heard: asyncio.Queue[list[str]] = asyncio.Queue()
        async with this_process(heard.put_nowait), another_process() as other:
            await until_it_listens()
            for sender, groups in ((INSTANCE, ["reports"]), ("another one", ["mail"])):
                await other.say({"from": sender, "groups": groups})
            async with asyncio.timeout(PATIENCE_S):
                return await heard.get()  # The first one that is heard.

    assert async_to_sync(story)() == ["mail"]


async def until_it_listens():
    sql = """
        SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = %s AND query LIKE 'LISTEN%%'
    """
    async with await psycopg.AsyncConnection.connect(**parameters_of("default"), autocommit=True) as connection:
        while (await connection.execute(sql, [LISTENER])).rowcount < 2:  # noqa: ASYNC110 - it tells nobody.
            await asyncio.sleep(0.01)
