"""The types of options and arguments, and the options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click
from click.shell_completion import CompletionItem

from ..client.client import Client
from ..errors import TaskStoreError
from ..types.tasks import NOBODY

DURATION = re.compile(r"([0-9]{1,9})(ms|s|min|h|d|w)")
SIZE_TEXT = re.compile(r"([0-9]{1,9})(KiB|MiB|GiB)")
UNITS_BYTES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
UNITS_MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
LARGEST = 2**63 - 1
LEAST_LEASE_MS, MOST_LEASE_MS = 1_000, 30 * 86_400_000
COMPLETION_S = 2.0  # Short, because the shell waits for the completion.


def group_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a group. Returns nothing if the server is unavailable."""
    url, token = ctx.params.get("url"), ctx.params.get("token")
    try:
        with Client(url, token=token, timeout_s=COMPLETION_S, patience_s=0) as client:
            return [CompletionItem(name) for name in client.groups() if name.startswith(incomplete)]
    except TaskStoreError:
        return []


def duration_ms(text: str) -> int:
    """Parse a time span such as 500ms, 30s, 10min, 2h, 7d."""
    if found := DURATION.fullmatch(text):
        return int(found[1]) * UNITS_MS[found[2]]
    raise click.BadParameter(f"must be a duration such as 500ms, 30s, 10min, 2h or 7d, not {text}")


def lease_ms(text: str) -> int:
    """Parse the length of a lease, which would end before its first renewal if it were below a second."""
    if not LEAST_LEASE_MS <= (length_ms := duration_ms(text)) <= MOST_LEASE_MS:
        raise click.BadParameter(f"must be between 1s and 30d, not {text}")
    return length_ms


def claim_ms(text: str) -> int:
    """Parse how long a claimed task is leased. No time at all would make it available again at once."""
    if length_ms := duration_ms(text):
        return length_ms
    raise click.BadParameter(f"must be longer than 0, such as 30s or 10min, not {text}")


def size_bytes(text: str) -> int:
    """Parse an amount of memory such as 256KiB, 512MiB, 2GiB."""
    if found := SIZE_TEXT.fullmatch(text):
        return int(found[1]) * UNITS_BYTES[found[2]]
    raise click.BadParameter(f"must be a size such as 256KiB, 512MiB or 2GiB, not {text}")


def timespec_ms(text: str) -> int:
    """Parse a time to the API's form: 0 now, positive that time, negative a span from now by the server's clock."""
    if text == "now":
        return 0
    if DURATION.fullmatch(text.removeprefix("+")):
        return -duration_ms(text.removeprefix("+"))
    try:
        moment = datetime.fromisoformat(text)
        at_ms = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"must be a time such as 2026-01-31T12:00 (UTC) or +10min, not {text}") from None
    if at_ms <= 0:  # The API would take it as a span from now.
        raise click.BadParameter(f"must be after 1 January 1970, not {text}")
    return at_ms


def pair(text: str) -> tuple[str, str]:
    """Parse a label or an argument such as tier=gold."""
    name, equals, value = text.partition("=")
    if name and equals:
        return name, value
    raise click.BadParameter(f"must be NAME=VALUE, not {text}")


class Number(click.IntRange):
    """A whole number in a range, whose errors are sentences like those of the server."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        least, most = self.min, self.max
        try:
            number = int(value)
        except ValueError:
            raise click.BadParameter(f"must be a whole number, not {value}", ctx, param) from None
        if (least is None or least <= number) and (most is None or number <= most):
            return number
        right = f"at least {least}" if most is None else f"between {least} and {most}"
        raise click.BadParameter(f"must be {right}, not {value}", ctx, param)


ID = Number(1, LARGEST)
SIZE = Number(min=0)
PRIORITY = Number(-100, 100)

group = click.argument("group", shell_complete=group_names)
groups = click.argument("groups", nargs=-1, shell_complete=group_names)
labels = click.option(
    "--label", "labels", type=pair, multiple=True, metavar="NAME=VALUE", help="A label; may be repeated."
)
_priority = partial(
    click.option, "--priority", type=PRIORITY, metavar="N", help="-100 to 100. Higher values are claimed first."
)
priority, priority_of_new = _priority(), _priority(default=0)
kwargs = click.option(
    "--with", "kwargs", type=pair, multiple=True, metavar="NAME=VALUE", help="A keyword argument; may be repeated."
)
reason = click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the audit log.")
unique = click.option(
    "--unique", metavar="KEY", help="Add nothing if a task of the group already has this key. 1 to 255 characters."
)
unique_for = click.option(
    "--unique-for",
    "unique_for_ms",
    type=duration_ms,
    default="0s",
    metavar="TIME",
    help="Reserve the key for this long, such as 1h, even if the task ends. At most 30d.",
)
limit = click.option(
    "--limit", type=SIZE, default=50, metavar="N", help="Show at most N; 0 shows all.", show_default=True
)


def in_name_of(otherwise: int | None, words: str) -> Callable[[Any], Any]:
    """Return the option for a client id."""
    return click.option(
        "--client",
        type=Number(-LARGEST - 1, LARGEST),
        envvar="TASKSTORE_CLIENT",
        default=otherwise,
        metavar="N",
        help=f"Client id to act as [default: TASKSTORE_CLIENT, else {words}].",
    )


# By default tasks have no owner, so that the next command can change them too.
client = in_name_of(NOBODY, "no client")
new_client = in_name_of(None, "a new one")
