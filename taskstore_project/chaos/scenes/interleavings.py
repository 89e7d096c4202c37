"""Two operations at the same time, in every order of their statements.

In this process and on two connections, as over HTTP nobody can say when a statement is sent. SQLite has no such
orders: BEGIN IMMEDIATE lets one transaction begin after the other has ended.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from itertools import product

from ..interleaving import arena, differences
from ..outcome import Figure, Outcome, Violation
from ..pairs import PAIRS
from ..rivals import ALONE, BY_THE_WRITER, Tally
from ..stage import TEMPLATE, Stage, make_store

LANES = 6  # Pairs are tried side by side: each mostly waits for PostgreSQL.


def interleavings(stage: Stage) -> Outcome:
    """Each order comes to what one of the two serial orders comes to, in the answers and in the tables."""
    # Nothing has to survive here: each of the many commits would wait for the disk.
    cluster = stage.places.new_cluster(fsync="off")
    make_store(stage.folder / "data", cluster.new_database(TEMPLATE))
    addresses = [cluster.new_database(f"lane_{number}", TEMPLATE) for number in range(LANES)]
    tally = Tally()
    found = asyncio.run(violations(stage, addresses, tally))
    cluster.kill()
    figures = [
        Figure(name=name, value=value, unit="")
        for name, value in (
            ("pairs of operations, each alone and by the writer,", len(PAIRS)),
            ("statements that waited for the other's locks", tally.waits),
            ("deadlocks, tried again", tally.deadlocks),
        )
    ]
    return Outcome(operations=2 * tally.orders, faults=tally.orders, violations=found, figures=figures)


async def violations(stage: Stage, addresses: Sequence[str], tally: Tally) -> list[Violation]:
    """`addresses`: of a store for each lane."""
    found: list[Violation] = []
    to_try = deque(product(PAIRS, (ALONE, BY_THE_WRITER)))

    async def go_through(address: str) -> None:
        async with arena(address, tally) as place:
            while to_try:
                pair, way = to_try.popleft()
                chance = random.Random(f"{stage.seed}/{pair.name}/{way}")  # noqa: S311 - the same each time.
                async for text in differences(place, pair, way, stage.pace.interleavings, chance):
                    found.append(Violation(text=text))

    await asyncio.gather(*map(go_through, addresses))
    return found
