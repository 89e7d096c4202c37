"""Check that two simultaneous operations have the same result as in one of the serial orders."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import psycopg
from msgspec.structs import asdict
from psycopg.rows import dict_row

from tasks_app.database import PostgreSQL
from tasks_app.database.plain import ROW_TYPES, PlainPostgreSQL, row_packers_of
from taskstore.errors import CommitRefused

from .history import Row
from .pairs import Pair
from .rivals import ALONE, Connection, Duel, MakeDialect, Rival, Tally, Way, connected, performed
from .truth import TABLES

EMPTIED = ("task", "endedtask", "countdelta", "batch", "batchcount", "batchgroup", "batchplan")
EMPTYING = "; ".join(f"DELETE FROM tasks_app_{table}" for table in EMPTIED).encode()  # noqa: S608 - the names are ours
COUNTS = """
    SELECT "group", sum(tasks)::bigint AS tasks, sum(leases)::bigint AS leases, sum(claimed)::bigint AS claimed
    FROM tasks_app_countdelta
    GROUP BY "group"
    ORDER BY "group"
"""

Order = Sequence[int]  # The index of the rival that sends each statement.
Names = Mapping[int, str]  # Names of the prepared tasks, by id.


@dataclass(frozen=True, slots=True)
class Told:
    """The responses and the final tables, without the ids and times, which differ each time."""

    answers: tuple[Any, Any]
    living: Any
    ended: Any
    counts: Any
    batches: Any


class Arena:
    """A store that is emptied before each duel."""

    def __init__(self, duel: Duel, watcher: Connection, make_dialect: MakeDialect) -> None:
        self.duel, self._watcher, self._make_dialect = duel, watcher, make_dialect

    async def serial(self, pair: Pair) -> tuple[list[Told], int, int]:
        """Return the results of both serial orders, and the number of statements of each operation."""
        found, numbers = [], [0, 0]
        for places in ((0, 1), (1, 0)):
            names = await self._begin(pair, ALONE)
            for place in places:
                await self.duel.play_one(place)
            numbers[places[0]] = self.duel.rivals[places[0]].answered
            found.append(await self._told(names))
        return found, numbers[0], numbers[1]

    async def result(self, pair: Pair, way: Way, order: Order) -> Told:
        names = await self._begin(pair, way)
        self.duel.tally.orders += 1
        await self.duel.play(order)
        return await self._told(names)

    async def _begin(self, pair: Pair, way: Way) -> Names:
        """Empty the store, add the pair's tasks, and give both rivals their operations."""
        await self._watcher.execute(EMPTYING)
        ann = self.duel.rivals[0]
        ann.begin(performed(pair.preparation, ALONE))
        await self.duel.play_one(0)
        ids = [task.id for task in ann.tasks()]
        make_dialect = await self._making_plain(pair, ids) if way.is_plain else self._make_dialect
        for rival, operation in zip(self.duel.rivals, pair.operations(ids), strict=True):
            rival.begin(performed(operation, way, make_dialect))
        return {task_id: f"task {place}" for place, task_id in enumerate(ids)}

    async def _making_plain(self, pair: Pair, ids: Sequence[int]) -> MakeDialect:
        """What makes dialects that know these tasks, as a writer does that has looked at a group before."""
        cursor = await self._watcher.execute(ROW_TYPES.sql.encode())
        row_packers = row_packers_of(await cursor.fetchall())

        def make(using: str, *, waits: bool) -> PlainPostgreSQL:
            dialect = PlainPostgreSQL(using, waits=waits)
            dialect.row_packers = row_packers
            dialect.know_candidates({group: [ids[pair.groups.index(group)]] for group in pair.groups})
            return dialect

        return make

    async def _told(self, names: Names) -> Told:
        living, ended, batches, counts = await self._rows(*TABLES, COUNTS)
        ann, bob = (told(rival, names) for rival in self.duel.rivals)
        makers = {row["id"]: row["made_by_commit"] for row in (*living, *ended)}
        return Told(
            answers=(ann, bob),
            living=sorted(told_of(row, names) for row in living),
            ended=sorted(told_of_ended(row, names, makers) for row in ended),
            counts=[tuple(row.values()) for row in counts],
            batches=[(row["open"], row["closed_at_ms"] > 0) for row in batches],
        )

    async def _rows(self, *queries: str) -> list[list[Row]]:
        async with self._watcher.pipeline():
            cursors = [self._watcher.cursor(row_factory=dict_row) for _ in queries]
            for cursor, query in zip(cursors, queries, strict=True):
                await cursor.execute(query.encode())
            return [await cursor.fetchall() for cursor in cursors]


def told(rival: Rival, names: Names) -> Any:
    try:
        return [told_of(task._asdict(), names) for task in rival.tasks()]
    except CommitRefused as error:
        reasons = asdict(error.refusal).items()
        return {name: [names.get(item, item) for item in items] for name, items in reasons if items}
    except psycopg.Error as error:
        return repr(error)


def told_of(task: Row, names: Names) -> tuple[Any, ...]:
    """Describe a task without its id: its name or "new", and its fields."""
    name = names.get(task["origin"], "new")
    return (name, task["group"], task["owner"], bytes(task["data"]), task["claims"], task["leased_since_ms"] > 0)


def told_of_ended(row: Row, names: Names, makers: Mapping[int, int]) -> tuple[Any, ...]:
    """Describe an ended task, and whether its successor has a larger id and is of the same commit."""
    successor = row["successor"]
    is_followed = successor is not None
    is_right = not is_followed or (successor > row["id"] and makers.get(successor) == row["ended_by_commit"])
    name = names.get(row["origin"], "new")
    return (name, row["group"], row["owner"], row["claims"], row["ending"], row["ended_by"], is_followed, is_right)


def orders(ann: int, bob: int, most: int, chance: random.Random) -> Iterator[Order]:
    """Yield all orders of the statements, or a random sample of `most`."""
    wanted = range(comb(ann + bob, ann))
    chosen = set(wanted if most >= len(wanted) else chance.sample(wanted, most))
    for number, places in enumerate(combinations(range(ann + bob), ann)):
        if number in chosen:
            yield [0 if place in places else 1 for place in range(ann + bob)]


@asynccontextmanager
async def arena(address: str, tally: Tally, make_dialect: MakeDialect = PostgreSQL) -> AsyncIterator[Arena]:
    """Create an arena in a PostgreSQL database that has the tables, and whose content may be deleted."""
    async with AsyncExitStack() as stack:
        ann, bob, watcher = [await stack.enter_async_context(await connected(address)) for _ in range(3)]
        yield Arena(Duel((Rival(ann), Rival(bob)), watcher, tally), watcher, make_dialect)


async def differences(arena: Arena, pair: Pair, way: Way, most: int, chance: random.Random) -> AsyncIterator[str]:
    """Yield a sentence for each order of statements whose result differs from both serial orders."""
    serial, ann, bob = await arena.serial(pair)
    for order in orders(ann, bob, most, chance):
        found = await arena.result(pair, way, order)
        if found not in serial:
            turns = "".join("AB"[place] for place in order)
            yield f"{pair.name}, {way}, in the order {turns}: {found} is none of {serial}"
