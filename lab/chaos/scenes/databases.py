"""Scenes about the database: kills and interleavings."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from itertools import product

from lab.testing.places import make_store, wait_until

from ..interleaving import arena, differences
from ..outcome import Figure, SceneResult, Violation, outcome_of
from ..pairs import PAIRS
from ..rivals import ALONE, BY_ONE_THAT_KNOWS, BY_THE_WRITER, Tally
from ..stage import Stage

RECOVERED_S = 5.0
TOLD_S = 5.0


def kill_postgresql(stage: Stage) -> SceneResult:
    """Kill PostgreSQL with kill -9: the servers answer 503 with Retry-After, and recover automatically."""
    cluster = stage.places.cluster
    servers = stage.servers()
    recovered_s = []
    with stage.load(servers):
        for _ in range(stage.pace.postgresql_kills):
            stage.pause(0.5, 2.0)
            cluster.kill()
            stage.pause(0.5, 3.0)
            cluster.start()
            recovered_s.append(wait_until(lambda: all(server.is_ready() for server in servers), "the servers recover"))
        stage.pause(0.5, 1.0)
    history = stage.history(servers[0], may_be_unavailable=True)
    told_s = [event.received_s - event.sent_s for event in history.requests if event.status == 503]
    figures = [
        Figure(name="ready again within", value=max(recovered_s), limit=RECOVERED_S),
        Figure(name="503 within", value=max(told_s, default=0.0), limit=TOLD_S),
    ]
    return outcome_of(history, faults=len(recovered_s), figures=figures)


LANES = 6  # Pairs run in parallel, because each mostly waits for PostgreSQL.


def interleavings(stage: Stage) -> SceneResult:
    """Compare responses and tables of each order of statements with those of the two serial orders."""
    # No fsync, because nothing must survive and many commits would wait for the disk.
    cluster = stage.places.new_cluster(fsync="off")
    make_store(stage.folder / "data", cluster.new_database("store"))
    addresses = [cluster.new_database(f"lane_{number}", "store") for number in range(LANES)]
    tally = Tally()
    found = asyncio.run(violations(stage, addresses, tally))
    cluster.kill()
    figures = [
        Figure(name=name, value=value, unit="")
        for name, value in (
            ("pairs of operations, each alone, by the writer, and by one that knows them,", len(PAIRS)),
            ("statements that waited for the other's locks", tally.waits),
            ("deadlocks, tried again", tally.deadlocks),
        )
    ]
    return SceneResult(operations=2 * tally.orders, faults=tally.orders, violations=found, figures=figures)


async def violations(stage: Stage, addresses: Sequence[str], tally: Tally) -> list[Violation]:
    """Return the violations. `addresses`: those of one store per lane."""
    found: list[Violation] = []
    to_try = deque(product(PAIRS, (ALONE, BY_THE_WRITER)))
    to_try += [(pair, BY_ONE_THAT_KNOWS) for pair in PAIRS if pair.is_plain]

    async def go_through(address: str) -> None:
        async with arena(address, tally) as place:
            while to_try:
                pair, way = to_try.popleft()
                chance = random.Random(f"{stage.seed}/{pair.name}/{way}")  # noqa: S311 - the same each time.
                async for text in differences(place, pair, way, stage.pace.interleavings, chance):
                    found.append(Violation(text=text))

    await asyncio.gather(*map(go_through, addresses))
    return found
