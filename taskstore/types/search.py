"""What a search finds."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from .scalars import After, prepare
from .tasks import Task


class SearchPage(Struct, frozen=True, kw_only=True):
    """Tasks that meet every term of a search."""

    tasks: tuple[Task, ...]
    after: After
    complete: Annotated[bool, Meta(description="false: the time limit came before the page was full; go on.")]
    looked_at: Annotated[int, Meta(description="How many tasks were looked at, at least.")]
    at_ms: Annotated[int, Meta(description="The time of the search; milliseconds since the Epoch.")] = field(name="at")


prepare(SearchPage)
