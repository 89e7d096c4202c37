"""Names with `/` or `.` as a tree: those that begin alike, up to a separator, stand in a folder. Pure."""

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
    """Two names or more that begin with `prefix`, which ends with a separator; they have no longer one in common."""

    prefix: str
    names: Sequence[str]  # All below, sorted; also that of the prefix itself.
    nodes: Sequence[Node]  # The next level, sorted by name.


Node: TypeAlias = Folder | str  # A name stands for itself.


def tree_of(names: Iterable[str]) -> list[Node]:
    """The first level, sorted by name. Each name is there once, in the folder of its longest prefix."""
    return _nodes(sorted(names), 0)


def is_prefix(text: str) -> bool:
    """Whether it could be that of a folder."""
    return bool(text) and bool(SEPARATOR.fullmatch(text[-1]))


def prefix_above(prefix: str) -> str:
    """The next shorter prefix; empty at the first level."""
    return _up_to_separator(prefix[:-1])


def below(name: str, prefix: str) -> str:
    """What tells the name from others in a folder: the rest of it, or all of it when there is none."""
    return name[len(prefix) :] or name


def _nodes(names: Sequence[str], start: int) -> list[Node]:
    """Sorted names that are alike up to `start`."""
    nodes: list[Node] = []
    for stem, each in groupby(names, lambda name: _stem(name, start)):
        alike = list(each)
        nodes += [_folder(alike)] if stem and len(alike) > 1 else alike
    return nodes


def _folder(names: Sequence[str]) -> Folder:
    # What the first and the last of sorted names have in common, all have.
    prefix = _up_to_separator(commonprefix([names[0], names[-1]]))  # noqa: RUF071 - by characters is what is meant.
    return Folder(prefix=prefix, names=names, nodes=_nodes(names, len(prefix)))


def _stem(name: str, start: int) -> str:
    """The name up to its first separator from `start` on; empty when there is none."""
    found = SEPARATOR.search(name, start)
    return name[: found.end()] if found else ""


def _up_to_separator(text: str) -> str:
    return text[: max(text.rfind("/"), text.rfind(".")) + 1]
