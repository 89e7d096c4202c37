"""Two operations at the same time, in every order of their statements.

In this process and on two connections, as over HTTP nobody can say when a statement is sent. SQLite has no such
orders: BEGIN IMMEDIATE lets one transaction begin after the other has ended.
"""

from __future__ import annotations

import asyncio

from ..interleaving import arena, differences
from ..outcome import Figure, Outcome, Violation
from ..pairs import PAIRS
from ..rivals import ALONE, BY_THE_WRITER, Tally
from ..stage import TEMPLATE, Stage, make_store


def interleavings(stage: Stage) -> Outcome:
    """Each order comes to what one of the two serial orders comes to, in the answers and in the tables."""
    # Nothing has to survive here: each of the many commits would wait for the disk.
    cluster = stage.places.new_cluster(fsync="off", max_connections="20")
    address = cluster.new_database(TEMPLATE)
    make_store(stage.folder / "data", address)
    tally = Tally()
    found = asyncio.run(violations(stage, address, tally))
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


async def violations(stage: Stage, address: str, tally: Tally) -> list[Violation]:
    async with arena(address, tally) as place:
        return [
            Violation(text=text)
            for pair in PAIRS
            for way in (ALONE, BY_THE_WRITER)
            async for text in differences(place, pair, way, stage.pace.interleavings, stage.chance)
        ]
