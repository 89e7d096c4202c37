"""The progress of a running task, as its owner reports it."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from . import sentences
from .scalars import PLAIN, prepare

if TYPE_CHECKING:
    from .tasks import Problem

TEXT_LENGTH = 255

Done = Annotated[float, Meta(ge=0, le=1, description="The completed fraction, from 0 to 1.")]


ProgressText = Annotated[
    str, Meta(max_length=TEXT_LENGTH, pattern=PLAIN, description="What the task is doing; at most 255 characters.")
]


class Progress(Struct, frozen=True, kw_only=True):
    """The latest progress that the owner of a task reported. It is discarded when the lease ends."""

    done: Done
    text: Annotated[str, Meta(description="What the task is doing; at most 255 characters.")] = ""
    at_ms: Annotated[int, Meta(description="When it was reported; milliseconds since the Epoch.")] = 0

    @property
    def percent(self) -> int:
        """The percentage that is done, rounded down, so that 100 means complete."""
        return int(round(self.done * 100, 6))


def problems_of(done: float, text: str) -> Iterator[Problem]:
    """Yield what is wrong with a report."""
    if type(done) not in (int, float) or not isfinite(done) or not 0 <= done <= 1:
        yield "done", sentences.share(done)
    if not isinstance(text, str):
        yield "text", f"must be a string{sentences.but_not(text)}"
    elif len(text) > TEXT_LENGTH:
        yield "text", sentences.at_most(TEXT_LENGTH, "characters", len(text))
    elif "\0" in text:
        yield "text", sentences.NO_NUL


prepare(Progress)
