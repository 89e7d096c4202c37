"""What the server answers, as frozen values. Times are milliseconds since the Epoch (UTC)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Self, TypeVar

AnswerT = TypeVar("AnswerT", bound="Answer")


def wire(name: str = "", read: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """Of a member that has another name on the wire, or is more than plain JSON."""
    return {"name": name, "read": read}


class Answer:
    """What is read from JSON. Members that it does not know are left out: a later server may say more."""

    __slots__ = ()

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Self:
        found = {}
        for each in fields(cls):  # type: ignore[arg-type]
            name = each.metadata.get("name") or each.name
            if name in tree:
                read = each.metadata.get("read")
                found[each.name] = read(tree[name]) if read else tree[name]
        return cls(**found)


def each(kind: type[AnswerT]) -> Callable[[Any], tuple[AnswerT, ...]]:
    return lambda trees: tuple(map(kind.of, trees))


def or_none(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda tree: None if tree is None else kind(tree)
