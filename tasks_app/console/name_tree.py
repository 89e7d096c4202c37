"""Arrange names with `/` or `.` as a tree: names with a common prefix, up to a separator, share a folder. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from os.path import commonprefix
from typing import TypeAlias

SEPARATOR = re.compile(r"[/.]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """At least two names with the longest common `prefix`, which ends with a separator."""

    prefix: str
    names: Sequence[str]  # All below, sorted; includes a name that equals the prefix.
    nodes: Sequence[Node]  # The next level, sorted by name.


Node: TypeAlias = Folder | str


def tree_of(names: Iterable[str]) -> list[Node]:
    """Return the first level, sorted by name. Each name occurs once, in the folder of its longest prefix."""
    return _nodes(sorted(names), 0)


def is_prefix(text: str) -> bool:
    """Return whether the text could be the prefix of a folder."""
    return bool(text) and bool(SEPARATOR.fullmatch(text[-1]))


def prefix_above(prefix: str) -> str:
    """Return the next shorter prefix; empty at the first level."""
    return _up_to_separator(prefix[:-1])


def below(name: str, prefix: str) -> str:
    """Return the name within its folder; a name that equals the prefix stays whole."""
    return name[len(prefix) :] or name


def _nodes(names: Sequence[str], start: int) -> list[Node]:
    """Return the nodes of sorted names that are equal up to `start`."""

    def stem_of(name: str) -> str:
        found = SEPARATOR.search(name, start)
        return name[: found.end()] if found else ""

    nodes: list[Node] = []
    for stem, each in groupby(names, stem_of):
        alike = list(each)
        if not stem or len(alike) == 1:
            nodes += alike
            continue
        # Names are sorted: a prefix of the first and the last is a prefix of all.
        prefix = _up_to_separator(commonprefix([alike[0], alike[-1]]))  # noqa: RUF071 - compares characters on purpose.
        nodes.append(Folder(prefix=prefix, names=alike, nodes=_nodes(alike, len(prefix))))
    return nodes


def _up_to_separator(text: str) -> str:
    return text[: max(text.rfind("/"), text.rfind(".")) + 1]
