"""Commands that are made from the table of endpoints: their options and help from the type of the request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import click
from msgspec import Struct, inspect

from ..client.calls import Call
from ..endpoints import Endpoint, plain
from ..types.command_record import DEFAULT_PROJECT
from ..types.scalars import Action
from . import parameter_types
from .base import Failure, Scope, Session, as_json, command
from .tables import Column, facts, table

T = TypeVar("T", bound=Struct)

PAGE = 200  # The largest page.
SCOPES = {
    Action.SEE: Scope.READ,
    Action.SEE_PAYLOADS: Scope.READ,
    Action.WORK: Scope.WORK,
    Action.OPERATE: Scope.OPERATE,
    Action.COMMANDS: Scope.COMMANDS,
}
OURS = {"after", "limit", "clientid", "key", "project", "reason"}  # Fields that options of all commands set.

project = click.option("--project", default=DEFAULT_PROJECT, show_default=True, metavar="NAME")


def lists(
    name: str,
    row: Endpoint[..., Any, Any],
    columns: Sequence[Column[T]],
    *,
    items: Callable[[Any], Sequence[T]] = lambda answer: answer,
    nothing: str,
    help: str,
    below: click.Group | None = None,
) -> click.Command:
    """Make the command that lists what an endpoint returns, page by page. `nothing`: the failure if there is none."""

    def do(session: Session, /, **asked: Any) -> None:
        found = session.some(list(all_of(session, row, items, **asked)), nothing.format(**asked))
        if not session.tell(map(as_json, found)):
            session.show(table(columns, found))

    return _command(name, row, do, help, below)


def shows(
    name: str,
    row: Endpoint[..., Any, Any],
    pairs: Callable[[Any], Iterable[tuple[str, object]]],
    *,
    missing: str,
    help: str,
    below: click.Group | None = None,
) -> click.Command:
    """Make the command that shows one thing. `missing`: the failure if it does not exist."""

    def do(session: Session, /, **asked: Any) -> None:
        found = one(session, row, missing, **asked)
        if not session.tell([as_json(found)]):
            session.show(facts(pairs(found)))

    return _command(name, row, do, help, below)


def does(
    name: str,
    row: Endpoint[..., Any, Any],
    says: Callable[[Any], str],
    *,
    missing: str = "",
    help: str,
    below: click.Group | None = None,
) -> click.Command:
    """Make the command that changes something. `says`: the sentence about what came of it."""

    def do(session: Session, /, **asked: Any) -> None:
        found = one(session, row, missing, **asked)
        if not session.tell([as_json(found)]):
            session.say(says(found))

    return _command(name, row, do, help, below)


def one(session: Session, row: Endpoint[..., Any, T], missing: str, **asked: Any) -> T:
    """Return the answer of an endpoint. Raises Failure with `missing` if it is about what does not exist.

    A command in `missing` is shown as the user types it for the same server.
    """
    found = session.store.send(Call.of(row, row.kind(**asked), may_be_missing=bool(missing)))
    if found is None:
        raise Failure(re.sub("`(.+)`", lambda named: f"`{session.typed(named[1])}`", missing.format(**asked)))
    return found


def all_of(
    session: Session, row: Endpoint[..., Any, Any], items: Callable[[Any], Sequence[T]], *, limit: int = 0, **asked: Any
) -> Iterator[T]:
    """Yield up to `limit` items of consecutive pages; 0: all."""

    def pages() -> Iterator[T]:
        after = None
        while True:
            paging = {"after": after, "limit": min(limit or PAGE, PAGE)} if "after" in row.fields else {}
            page = session.store.send(Call.of(row, row.kind(**asked, **paging)))
            yield from items(page)
            after = getattr(page, "after", None)
            if after is None:
                return

    return islice(pages(), limit or None)


def _command(
    name: str, row: Endpoint[..., Any, Any], do: Callable[..., None], help: str, below: click.Group | None
) -> click.Command:
    do.__doc__ = help
    for field in reversed([each for each in row.fields if each not in OURS]):
        do = _parameter(row, field)(do)
    for field, option in (("limit", parameter_types.limit), ("reason", parameter_types.reason), ("project", project)):
        do = option(do) if field in row.fields else do
    scope = SCOPES[row.needs] if row.needs else Scope.READ
    return command(name, needs=scope, below=below)(do)


def _parameter(row: Endpoint[..., Any, Any], name: str) -> Callable[[Any], Any]:
    """Return the argument or the option for a field of the request."""
    field = row.fields[name]
    type_ = plain(field.type)
    kind: dict[str, Any] = {"type": parameter_types.ID} if isinstance(type_, inspect.IntType) else {}
    if name in row.in_path:
        if row.has_slashes(name):
            return click.argument(name, metavar="GROUP", shell_complete=parameter_types.group_names)
        return click.argument(name, **kind)
    described = field.type.types[0] if isinstance(field.type, inspect.UnionType) else field.type
    said = (getattr(described, "extra_json_schema", None) or {}).get("description")
    kind = {"metavar": name.upper(), **kind}
    if isinstance(type_, inspect.EnumType):
        chosen = type_.cls
        kind = {
            "type": click.Choice([each.value for each in chosen]),
            "callback": lambda ctx, param, value: value and chosen(value),
        }
    return click.option(f"--{name}", help=said, default=field.default, **kind)
