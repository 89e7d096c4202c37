"""What could come next in a search that is being typed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from taskstore.types.tasks import State

from ...models import Task
from ..clients import seen
from .grammar import LONGEST, Key, written

MOST = 12
NEWEST = 2_000  # Tasks whose labels are suggested: those of all would take too long while somebody types.

BEGINNINGS = {
    Key.LABEL: ["label.", "label:"],
    Key.DATA: ["data:", "data."],
    Key.AGE: ["age:>", "age:<"],
    Key.AVAILABLE: ["available:<", "available:>"],
}
OF_LABEL = "label."


def suggest(text: str) -> list[str]:
    """Whole texts for the box, which begin with what is there: its last word gone on with; at most 12."""
    if len(text) > LONGEST:
        return []
    before, word = _last_word(text)
    begun = word.removeprefix("-")
    dash = word[: len(word) - len(begun)]
    found = (before + dash + each for each in _continuations(begun))
    return [each for each, _ in zip(found, range(MOST), strict=False)]


def _last_word(text: str) -> tuple[str, str]:
    place = max(text.rfind(" "), text.rfind("\n")) + 1
    return text[:place], text[place:]


def _continuations(word: str) -> Iterator[str]:
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
    """The names of the labels of the newest tasks, with their values."""
    values: dict[str, set[str]] = defaultdict(set)
    for labels in Task.objects.order_by("-id").values_list("labels", flat=True)[:NEWEST]:
        for name, value in labels.items():
            values[name].add(value)
    return values
