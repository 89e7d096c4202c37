"""What is answered, as types (contract.md sections 3 to 5)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from taskstore.types.scalars import Ids
from taskstore.types.tasks import Refusal

from ..wire.tasks import TaskAnswer


class SearchAnswer(Struct, frozen=True, kw_only=True):
    """Tasks that meet every term of a search."""

    tasks: tuple[TaskAnswer, ...]
    after: Annotated[str | None, Meta(description="Send it as `after` to go on; null: there are no more.")]
    complete: Annotated[bool, Meta(description="false: the time limit came before the page was full; go on.")]
    looked_at: Annotated[int, Meta(description="How many tasks were looked at, at least.")]
    at: Annotated[int, Meta(description="The time of the search; milliseconds since the Epoch.")]


class Refused(Struct, frozen=True, kw_only=True):
    """Why nothing was changed: every reason, not the first."""

    changes: Annotated[Ids, Meta(description="Not there to be updated.")]
    deletes: Annotated[Ids, Meta(description="Not there to be deleted.")]
    depends: Annotated[Ids, Meta(description="Not there.")]
    owned: Annotated[Ids, Meta(description="Not yet available, and another client's.")]
    bugs: Annotated[tuple[str, ...], Meta(description="What makes no sense.")]

    @classmethod
    def of(cls, refusal: Refusal) -> Refused:
        return cls(
            changes=refusal.changes,
            deletes=refusal.deletes,
            depends=refusal.depends,
            owned=refusal.owned,
            bugs=refusal.bugs,
        )


class Outcome(Struct, frozen=True, kw_only=True):
    """What came of an update or a claim: the new tasks, or why nothing was changed."""

    tasks: tuple[TaskAnswer, ...] = ()
    error: Refused | None = None
