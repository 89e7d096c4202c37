"""The results of a search."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from .history import FileFormat
from .requests import Asked
from .scalars import After, NextAfter, PageSize, prepare
from .tasks import Task

SEARCH_LENGTH = 1_000


class SearchPage(Struct, frozen=True, kw_only=True):
    """A page of tasks that match every term of a search."""

    tasks: tuple[Task, ...]
    after: After
    complete: Annotated[bool, Meta(description="false if the search stopped at its time limit; `after` continues it.")]
    looked_at: Annotated[int, Meta(description="At least this many tasks were examined.")]
    at_ms: Annotated[int, Meta(description="The time of the search; milliseconds since the Epoch.")] = field(name="at")
    truncated: Annotated[
        bool | UnsetType,
        Meta(description="true if the page ends early, so that the response is not too large; `after` continues it."),
    ] = UNSET


class SearchRequest(Asked, frozen=True):
    """Which tasks to find."""

    q: Annotated[str, Meta(max_length=SEARCH_LENGTH, description="Search terms. A task must match all of them.")] = ""
    after: NextAfter | None = None
    limit: PageSize = 50


class ExportRequest(Asked, frozen=True):
    """Which tasks to export, and how."""

    q: Annotated[str, Meta(max_length=SEARCH_LENGTH, description="As for `/search`; without it, every task.")] = ""
    format: FileFormat = FileFormat.NDJSON


prepare(SearchPage, SearchRequest)
