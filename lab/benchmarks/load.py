"""How much is asked of a contender at once. Known on both sides: by who starts clients, and by the clients."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

GROUP = "bench"
DATA = b"x" * 100
PRESENT = 10_000
LEASE_MS = 3_600_000  # Nothing may become available again while it is measured.


class Verb(StrEnum):
    """What a client does again and again."""

    CYCLE = "claim, delete"
    CLAIM = "claim"
    REPLACE = "claim, delete and add one"  # The number of tasks stays, for as long as one likes.


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    clients: int
    verb: Verb = Verb.CYCLE
    batch: int = 1  # Tasks of a claim.
    present: int = PRESENT  # Never fewer tasks than this are there to be claimed.
    with_keys: bool = False  # Every request has an idempotency key.
    rate: int = 0  # Tasks a second of all clients together; 0: as many as they can.

    @property
    def requests_per_task(self) -> float:
        return (1 if self.verb is Verb.CLAIM else 2) / self.batch

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        return cls(**{**fields, "verb": Verb(fields["verb"])})
