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
    upgrades: int  # And as many ways back.
    worker_kills: int
    takeovers: int
    cuts: int
    interleavings: int  # Of each pair of operations, in each way; all of them, if there are fewer.
    least_operations: int


SHORT = Pace(
    clients=16,
    seconds=60,
    server_kills=20,
    migrate_kills=3,
    postgresql_kills=8,
    upgrades=3,
    worker_kills=100,
    takeovers=500,
    cuts=400,
    interleavings=924,
    least_operations=12_000,
)
# For every change: each kind of fault a few times, in a minute for each database.
TINY = Pace(
    clients=8,
    seconds=4,
    server_kills=2,
    migrate_kills=1,
    postgresql_kills=1,
    upgrades=1,
    worker_kills=8,
    takeovers=50,
    cuts=40,
    interleavings=10,
    least_operations=300,
)
