"""Workers: their heartbeats, and the tasks that they hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, Min, Sum

from taskstore.types.clients import Heard

from ..core.heartbeats import LOST_MS
from ..core.operations import EVERY_GROUP, GroupScope
from ..models import Client, Task, WorkDone
from ..writer.totals import leased

KEPT_MS = int(timedelta(days=1) / timedelta(milliseconds=1))  # After the last heartbeat.
MOST_LISTED = 10_000
MINUTE_MS = 60_000
DONE_MINUTES = 10

STOPPED = "stopped"  # In the info: true is the last word of a client.
HEARD = ("name", "host", "pid", "groups", "version", "info", "seen_at_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A client, and how long ago it was heard by the database's clock. `groups`: those that the asker may see."""

    client: Client
    groups: list[str]
    age_ms: int

    def as_answer(self, done_per_minute: float | None = None) -> Heard:
        """Return what the client said of itself, as the API tells it."""
        client = self.client
        return Heard(
            client_id=client.id,
            name=client.name,
            host=client.host,
            pid=client.pid,
            groups=tuple(self.groups),
            version=client.version,
            info=json.loads(client.info),
            seen_at_ms=client.seen_at_ms,
            age_ms=self.age_ms,
            done_per_minute=done_per_minute,
        )


def hear(client: Client) -> Seen:
    """Keep what a client says of itself, in place of what it said before.

    Clients that have been silent for more than a day are forgotten on this occasion, and so is one that says that it
    stops: it would be called lost otherwise.
    """
    client.seen_at_ms = Task.objects.now_ms()
    Client.objects.filter(seen_at_ms__lt=client.seen_at_ms - KEPT_MS).delete()
    if json.loads(client.info).get(STOPPED) is True:
        Client.objects.filter(pk=client.pk).delete()
    else:
        # One statement: two heartbeats of a client that come together are no conflict.
        Client.objects.bulk_create([client], update_conflicts=True, unique_fields=["id"], update_fields=HEARD)
    return Seen(client=client, groups=client.groups, age_ms=0)


def seen(scope: GroupScope = EVERY_GROUP) -> list[Seen]:
    """The clients that were heard within a day, the last heard first, at most 10 000.

    With a scope only those that named one of its groups.
    """
    now_ms = Task.objects.now_ms()
    heard = Client.objects.filter(seen_at_ms__gte=now_ms - KEPT_MS).order_by("-seen_at_ms", "id")
    return list(_within(scope, heard[:MOST_LISTED], now_ms))


def attending(group: str) -> int:
    """How many of the clients that are not lost have named the group."""
    return sum(group in each.client.groups for each in seen() if each.age_ms < LOST_MS)


def done_per_minute() -> dict[int, float]:
    """How many tasks each client was done with a minute, by its id: over the last ten full minutes, in every group.

    Without those that were done with none. Done: it ended its lease by a commit, by another one than giving the
    task back. Who has not worked for ten minutes yet, has the minutes before as minutes without work.
    """
    minute = Task.objects.now_ms() // MINUTE_MS
    lately = WorkDone.objects.filter(minute__gte=minute - DONE_MINUTES, minute__lt=minute)
    sums = lately.values_list("client").annotate(Sum("tasks"))
    return {client: tasks / DONE_MINUTES for client, tasks in sums}


def _within(scope: GroupScope, heard: Iterable[Client], now_ms: int) -> Iterator[Seen]:
    for client in heard:
        groups = [group for group in client.groups if scope.allows(group)]
        if groups or scope.patterns is None:
            yield Seen(client=client, groups=groups, age_ms=max(0, now_ms - client.seen_at_ms))


FEW_GROUPS = 500  # Looked at one by one; with more, all tasks are.


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    tasks: int
    since_ms: int | None  # When the oldest lease began, or was last renewed; None: there is none.


NOTHING = Holding(tasks=0, since_ms=None)


def holdings() -> dict[int, Holding]:
    """By client id, without those that hold nothing."""
    claimed = Task.objects.get_queryset().claimed(Task.objects.now_ms())
    groups = leased(FEW_GROUPS + 1)
    if len(groups) <= FEW_GROUPS:
        claimed = claimed.filter(group__in=groups)
    by_owner = claimed.values_list("owner").annotate(Count("id"), Min("leased_since_ms")).order_by()
    return {owner: Holding(tasks=tasks, since_ms=since_ms) for owner, tasks, since_ms in by_owner}
