"""What could come next in a search that is being typed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..clients import seen
from ..models import Task
from ..operations import State
from .grammar import LONGEST, Key, quoted

MOST = 12
PLAIN = frozenset(' \t\n"')

BEGINNINGS = {
    Key.LABEL: ["label."],
    Key.DATA: ["data:", "data."],
    Key.AGE: ["age:>", "age:<"],
    Key.AVAILABLE: ["available:<", "available:>"],
}


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
        beginnings = (begin for key in Key if key is not Key.ID for begin in BEGINNINGS.get(key, [f"{key}:"]))
        yield from (begin for begin in beginnings if begin.startswith(word))
        return
    for value in _values(key):
        if begun.strip('"').casefold() in value.casefold():
            yield f"{key}:{quoted(value) if PLAIN & set(value) else value}"


def _values(key: str) -> Iterable[str]:
    match key:
        case Key.GROUP:
            return Task.objects.groups()
        case Key.STATE:
            return State
        case Key.OWNER:
            return dict.fromkeys(each.client.name or str(each.client.id) for each in seen())
        case _:
            return ()
