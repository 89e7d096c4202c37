"""Commands about the limits of groups."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from .. import endpoints
from ..types.limits import MOST_RUNNING, GroupLimit, LimitUse, Rate
from . import made, parameter_types
from .base import Scope, Session, as_json, command
from .tables import Column, facts, number, table

RUNNING = parameter_types.Number(1, MOST_RUNNING)


@click.group("limits")
def limits() -> None:
    """Limit how many tasks of a group are leased at once, or claimed within a time."""


made.lists(
    "list",
    endpoints.LIMITS,
    (
        Column[GroupLimit]("group", lambda each: each.name, style="bold"),
        Column[GroupLimit]("running", lambda each: each.running, is_number=True),
        Column[GroupLimit]("rate", lambda each: each.rate),
        Column[GroupLimit]("by", lambda each: each.by),
    ),
    nothing="no group has limits",
    help="List the limits of groups.",
    below=limits,
)


def _facts(found: GroupLimit) -> Iterator[tuple[str, object]]:
    yield "limit of", found.name
    yield "running", found.running
    yield "rate", found.rate
    yield "by", found.by
    yield "held back", found.why


USE = (
    Column[LimitUse]("value", lambda each: each.value or "—", style="bold", is_long=True),
    Column[LimitUse]("leased", lambda each: number(each.leased), is_number=True),
    Column[LimitUse]("claimed", lambda each: number(each.claimed), is_number=True),
    Column[LimitUse]("held back", lambda each: each.why, is_long=True),
)


@command("show", needs=Scope.READ, below=limits)
@parameter_types.group
def show(session: Session, group: str) -> None:
    """Show the limit of GROUP and how much of it is used."""
    found = made.one(session, endpoints.GROUP_LIMITS, "{name} has no limits: `limits list` lists limits", name=group)
    if not session.tell([as_json(found)]):
        session.show(facts(_facts(found)))
        if found.use:
            session.show(table(USE, found.use))


def rate_in(text: str) -> Rate:
    """Parse a rate such as 100/1s."""
    found = re.fullmatch("([0-9]{1,9})/(.+)", text)
    if not found:
        raise click.BadParameter(f"must be a number of tasks and a time, such as 100/1s, not {text}")
    return Rate(int(found[1]), parameter_types.duration_ms(found[2]))


@command("set", needs=Scope.OPERATE, below=limits)
@parameter_types.group
@click.option("--running", type=RUNNING, metavar="N", help="How many tasks may be leased at once.")
@click.option("--rate", type=rate_in, metavar="N/TIME", help="How many may be claimed within a time, such as 100/1s.")
@click.option("--by", default="", metavar="LABEL", help="Separately for each value of this label.")
@parameter_types.reason
def set_(session: Session, group: str, running: int | None, rate: Rate | None, by: str, reason: str) -> None:
    """Limit GROUP, or with a star at the end every group that begins so. Replaces its limit.

    taskstore limits set 'mail/*' --running 20 --rate 100/1s --by tenant
    """
    if running is None and rate is None:
        raise click.UsageError("give --running, --rate or both")
    new = session.store.set_limits(group, running=running, rate=rate, by=by, reason=reason)
    if not session.tell([as_json(new)]):
        session.say(f"{group}: {new}")


made.does(
    "remove",
    endpoints.DELETE_LIMITS,
    lambda found: f"removed the limit of {found.name}",
    missing="{name} has no limits of its own: `limits list` lists limits",
    help="Remove the limit of GROUP.",
    below=limits,
)
