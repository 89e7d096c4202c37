"""What the server answers, as frozen values. Times are milliseconds since the Epoch (UTC)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task, as it was when the server answered."""

    id: int
    group: str
    data: bytes = b""
    data_type: str = ""
    error: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    origin: int = 0
    claims: int = 0
    owner: int = 0
    available_at_ms: int = 0
    created_at_ms: int = 0

    @property
    def text(self) -> str:
        """The data as text. Raises UnicodeDecodeError when it is no UTF-8."""
        return self.data.decode()

    def json(self) -> Any:
        """The value that the data holds. Raises ValueError when it is no JSON."""
        return json.loads(self.data)

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Self:
        return cls(
            id=tree["id"],
            group=tree["group"],
            data=_data_of(tree),
            data_type=tree.get("data_type", ""),
            error=tree["error"],
            labels=tree["labels"],
            priority=tree["priority"],
            origin=tree["origin"],
            claims=tree["claims"],
            owner=tree["ownerid"],
            available_at_ms=tree["timespec"],
            created_at_ms=tree["created"],
        )


def _data_of(tree: Mapping[str, Any]) -> bytes:
    text: str | None = tree.get("data")
    return base64.b64decode(tree.get("data_base64", "")) if text is None else text.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage(Answer):
    """Tasks that meet every term of a search."""

    tasks: tuple[Task, ...] = field(metadata=wire(read=lambda trees: tuple(map(Task.of, trees))))
    after: str | None  # Where the next page begins; None: there are no more.
    complete: bool  # False: the time limit came before the page was full.
    looked_at: int
    at_ms: int = field(metadata=wire("at"))
