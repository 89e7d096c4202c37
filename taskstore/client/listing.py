"""A list of tasks in JSON, one by one while it comes in: a group may hold more than fits the memory."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator

import msgspec

from ..types.tasks import Task
from .errors import UnexpectedAnswer

DECODER = json.JSONDecoder()
BETWEEN = "[,] \n\r\t"


class Listing:
    """Fed with bytes, it gives the tasks that are whole. Raises UnexpectedAnswer when it is no list of tasks."""

    def __init__(self) -> None:
        self._text = ""
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._enough = 0  # With less there is no use in looking: a task may be large, and come in small pieces.

    def feed(self, piece: bytes) -> Iterator[Task]:
        self._text += self._utf8.decode(piece)
        if len(self._text) < self._enough:
            return
        place = 0
        while (place := self._after_separators(place)) < len(self._text):
            try:
                tree, place = DECODER.raw_decode(self._text, place)
            except ValueError:
                break
            yield _task_of(tree)
        self._text = self._text[place:]
        self._enough = 2 * len(self._text)

    def end(self) -> Iterator[Task]:
        """What is left, now that nothing follows."""
        self._enough = 0
        yield from self.feed(b"")
        if self._text:
            raise UnexpectedAnswer(f"the answer is not a list of tasks: {self._text[:100]}")

    def _after_separators(self, place: int) -> int:
        while place < len(self._text) and self._text[place] in BETWEEN:
            place += 1
        return place


def _task_of(tree: dict[str, object]) -> Task:
    try:
        return msgspec.convert(tree, Task)
    except msgspec.ValidationError as problem:
        raise UnexpectedAnswer(f"the answer has an invalid task: {problem!r}") from problem
