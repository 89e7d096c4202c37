"""The length of a run and the number of its faults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    clients: int
    seconds: float  # Of a load in which nothing is counted.
    server_kills: int
    migrate_kills: int
    postgresql_kills: int
    worker_kills: int
    takeovers: int
    cuts: int
    failovers: int
    interleavings: int  # Of each pair of operations, in each way; all of them, if there are fewer.
    tasks: int  # Present, where it is about many of them.
    groups: int
    least_operations: int
    crowd: float  # The share of the full number of slow clients.
    slow_client_s: int  # The server's time limit for slow clients.


SHORT = Pace(
    clients=16,
    seconds=60,
    server_kills=20,
    migrate_kills=3,
    postgresql_kills=8,
    worker_kills=100,
    takeovers=500,
    cuts=400,
    failovers=3,
    interleavings=924,
    tasks=1_000_000,
    groups=300_000,
    least_operations=12_000,
    crowd=1.0,
    slow_client_s=30,
)
# For every change: each kind of fault a few times, in a minute for each database.
TINY = Pace(
    clients=8,
    seconds=4,
    server_kills=2,
    migrate_kills=1,
    postgresql_kills=1,
    worker_kills=8,
    takeovers=50,
    cuts=40,
    failovers=1,
    interleavings=10,
    tasks=20_000,
    groups=3_000,
    least_operations=300,
    crowd=0.1,
    slow_client_s=2,
)
