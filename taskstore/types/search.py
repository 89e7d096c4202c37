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
    complete: Annotated[
        bool,
        Meta(description="false if the time limit ended the search before the page was full; `after` continues it."),
    ]
    looked_at: Annotated[int, Meta(description="The least number of tasks that were examined.")]
    at_ms: Annotated[int, Meta(description="The time of the search, in milliseconds since the Epoch.")] = field(
        name="at"
    )


prepare(SearchPage)
