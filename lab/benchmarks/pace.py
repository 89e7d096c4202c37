"""How long and how often things are measured, and how much is asked of a contender at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

GROUP = "bench"
DATA = b"x" * 100
PRESENT = 10_000  # Never fewer tasks than this are there to be claimed.
LEASE_MS = 3_600_000  # Nothing may become available again while it is measured.


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    lead_s: float  # Of work before it counts.
    seconds: float  # Of work that counts.
    rounds: int
    clients: tuple[int, ...]
    jobs: int  # For the slowest workers,
    job_wakeups: int  # and how often one comes to idle ones.

    def __str__(self) -> str:
        return f"{self.rounds} rounds of {self.seconds:g} s each, after {self.lead_s:g} s that did not count"


FULL = Pace(lead_s=1, seconds=5, rounds=5, clients=(1, 8, 32, 128), jobs=1_000, job_wakeups=20)
QUICK = Pace(lead_s=0.3, seconds=1, rounds=2, clients=(1, 32), jobs=200, job_wakeups=3)


class Verb(StrEnum):
    """What a client does again and again."""

    CYCLE = "claim, delete"
    CLAIM = "claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    clients: int
    verb: Verb = Verb.CYCLE
    batch: int = 1  # Tasks of a claim.
    with_keys: bool = False  # Every request has an idempotency key.
    rate: int = 0  # Tasks a second of all clients together; 0: as many as they can.

    @property
    def requests_per_task(self) -> float:
        return (1 if self.verb is Verb.CLAIM else 2) / self.batch

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        return cls(**{**fields, "verb": Verb(fields["verb"])})
