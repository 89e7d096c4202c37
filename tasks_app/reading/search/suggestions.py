"""Suggest completions of a search."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from taskstore.types.history import SEARCH_LENGTH
from taskstore.types.tasks import State

from ...models import Task
from ..clients import seen
from .grammar import Key, written

MOST = 12
NEWEST = 2_000  # Tasks whose labels are suggested; all tasks would take too long while somebody types.

BEGINNINGS = {
    Key.LABEL: ["label.", "label:"],
    Key.DATA: ["data:", "data."],
    Key.AGE: ["age:>", "age:<"],
    Key.AVAILABLE: ["available:<", "available:>"],
}
OF_LABEL = "label."


def suggest(text: str) -> list[str]:
    """Return whole texts for the box that complete its last word; at most 12."""
    if len(text) > SEARCH_LENGTH:
        return []
    start = max(text.rfind(" "), text.rfind("\n")) + 1
    begun = text[start:].removeprefix("-")
    before = text[: len(text) - len(begun)]
    return [before + each for each in islice(_completions(begun), MOST)]


def _completions(word: str) -> Iterator[str]:
    key, colon, begun = word.partition(":")
    if not colon:
        yield from (begin for begin in _beginnings(word) if begin.startswith(word))
        return
    for value in _values(key):
        if begun.strip('"').casefold() in value.casefold():
            yield f"{key}:{written(value)}"


def _beginnings(word: str) -> Iterator[str]:
    for key in Key:
        if key is not Key.ID:
            yield from BEGINNINGS.get(key, [f"{key}:"])
    if word.startswith(OF_LABEL):
        yield from (f"{OF_LABEL}{written(name)}:" for name in sorted(_labels()))


def _values(key: str) -> Iterable[str]:
    if key.startswith(OF_LABEL):
        return sorted(_labels().get(key.removeprefix(OF_LABEL).strip('"'), ()))
    match key:
        case Key.LABEL:
            return sorted(_labels())
        case Key.GROUP | Key.FAILED_FROM:
            return Task.objects.groups()
        case Key.STATE:
            return State
        case Key.OWNER:
            return dict.fromkeys(each.client.name or str(each.client.id) for each in seen())
        case _:
            return ()


def _labels() -> Mapping[str, set[str]]:
    """Return the label names of the newest tasks, with their values."""
    values: dict[str, set[str]] = defaultdict(set)
    for labels in Task.objects.order_by("-id").values_list("labels", flat=True)[:NEWEST]:
        for name, value in labels.items():
            values[name].add(value)
    return values
