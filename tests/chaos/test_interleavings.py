"""Two operations in any order of their statements: where locks fail, it is seen. `chaos` tries the store as it is."""

import asyncio
import random

import pytest
from psycopg.conninfo import make_conninfo

from lab.chaos.interleaving import arena, differences
from lab.chaos.pairs import PAIRS
from lab.chaos.rivals import ALONE, BY_THE_WRITER, Tally
from tasks_app.database import PostgreSQL
from tasks_app.database.rows import Statement
from tasks_app.writer.connection import parameters_of
from tests.behaviour.databases import only_postgresql

CLAIM_OF_WHAT_IS_REPLACED = "one claims what the other deletes, which adds another"
DEPENDS_THAT_CROSS = "each depends on what the other updates"


class WithoutLocks(PostgreSQL):
    """It reads what a commit names, and locks nothing."""

    def tasks_of(self, ids, clause=""):
        return super().tasks_of(ids, "ORDER BY id")

    def _lock(self, changed, depended):
        return Statement("SELECT")


class TakesLockedForNothing(PostgreSQL):
    """What others have locked is as good as gone."""

    def groups_with_more(self, groups, seen):
        return set()
        yield


@pytest.fixture
def tried(transactional_db):
    """What goes wrong in so many orders of the pairs of these names, and what happened there."""

    def tried(pairs, way, most, make_dialect=PostgreSQL):
        tally = Tally()

        async def found():
            async with arena(make_conninfo(**without_none(parameters_of("default"))), tally, make_dialect) as place:
                return [text for pair in pairs async for text in differences(place, pair, way, most, random.Random(1))]

        return asyncio.run(found()), tally

    return tried


def without_none(parameters):
    return {name: value for name, value in parameters.items() if value is not None}


def named(name):
    [pair] = (pair for pair in PAIRS if pair.name == name)
    return pair


class WithoutLocksOfBatches(PostgreSQL):
    def lock_each(self, numbers, shared):
        return Statement("SELECT true FROM unnest(%s::bigint[])", [self.list_of(numbers)])


@only_postgresql
@pytest.mark.parametrize("way", [ALONE, BY_THE_WRITER], ids=str)
def test_it_is_found_when_the_end_of_a_batch_is_missed(tried, way):
    pair = named("each ends one of the last two tasks of a batch")
    assert tried([pair], way, 100)[0] == []
    assert tried([pair], way, 40, WithoutLocksOfBatches)[0]


@only_postgresql
@pytest.mark.parametrize("way", [ALONE, BY_THE_WRITER], ids=str)
def test_it_is_found_when_nothing_is_locked(tried, way):
    [text, *_], _ = tried([named(DEPENDS_THAT_CROSS)], way, 10, WithoutLocks)
    assert text.startswith(f"{DEPENDS_THAT_CROSS}, {way}, in the order ")


@only_postgresql
def test_it_is_found_when_a_claim_takes_what_is_locked_for_nothing(tried):
    found, _ = tried([named(CLAIM_OF_WHAT_IS_REPLACED)], BY_THE_WRITER, 40, TakesLockedForNothing)
    assert found
