"""Workers: their heartbeats, and the tasks that they hold."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, Min, Sum

from taskstore.errors import Forbidden
from taskstore.types.groups import LOST_MS, ClientStatus

from ..access import tokens
from ..access.rights import alive
from ..core.operations import EVERY_GROUP, GroupScope
from ..database import atomic
from ..managers import TaskQuerySet
from ..models import Client, Task, WorkDone
from ..writer.totals import leased

KEPT_MS = int(timedelta(days=1) / timedelta(milliseconds=1))  # After the last heartbeat.
MOST_LISTED = 10_000
MINUTE_MS = 60_000
DONE_MINUTES = 10

STOPPED = "stopped"  # The info field that is true in a client's last heartbeat.
HEARD = ("name", "host", "pid", "groups", "version", "info", "seen_at_ms", "token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A client with the age of its last heartbeat, by the database's clock. `groups` are those within the scope."""

    client: Client
    groups: list[str]
    age_ms: int

    @property
    def is_lost(self) -> bool:
        return self.age_ms >= LOST_MS

    def as_answer(self, done_per_minute: float | None = None, keep: Mapping[str, int] | None = None) -> ClientStatus:
        """Convert the client to its type in the API."""
        client = self.client
        return ClientStatus(
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
            keep=dict(keep or {}),
        )


def hear(client: Client) -> Seen:
    """Store a heartbeat in place of the client's last one.

    Also deletes clients without a heartbeat for a day or with one from when a clock was ahead, and a client that says
    that it stops, which would count as lost otherwise. Raises Forbidden when it is another token's client, which is
    not lost.
    """
    now_ms = client.seen_at_ms = Task.objects.now_ms()
    others = Client.objects.filter(pk=client.pk, seen_at_ms__range=(now_ms - LOST_MS + 1, now_ms + LOST_MS))
    holder = others.exclude(token=None).exclude(token=client.token).values_list("token", flat=True).first()
    if holder is not None and alive().filter(pk=holder).exists():
        both = [pk for pk in (holder, client.token) if pk is not None]
        # The programs on a machine have a new token with each start of its server.
        are_of_a_machine = tokens.of_nodes().filter(pk__in=both).count() == 2
        if not are_of_a_machine:
            raise Forbidden(f"Client {client.pk} sends heartbeats with another token: choose another client id.")
    with atomic():
        forgotten = Client.objects.exclude(seen_at_ms__range=(now_ms - KEPT_MS, now_ms + LOST_MS))
        forgotten = forgotten.select_for_update(skip_locked=True)
        Client.objects.filter(pk__in=forgotten.values("pk")).delete()
        if json.loads(client.info).get(STOPPED) is True:
            Client.objects.filter(pk=client.pk).delete()
        else:
            # One statement, so that two heartbeats of a client at the same time do not conflict.
            Client.objects.bulk_create([client], update_conflicts=True, unique_fields=["id"], update_fields=HEARD)
    return Seen(client=client, groups=client.groups, age_ms=0)


def seen(scope: GroupScope = EVERY_GROUP) -> list[Seen]:
    """Return the clients with a heartbeat within a day, the latest first, at most 10 000.

    A limited scope returns only clients that named one of its groups.
    """
    now_ms = Task.objects.now_ms()
    heard = Client.objects.filter(seen_at_ms__range=(now_ms - KEPT_MS, now_ms + LOST_MS)).order_by("-seen_at_ms", "id")
    found = []
    for client in heard[:MOST_LISTED]:
        groups = [group for group in client.groups if scope.allows(group)]
        if groups or scope.patterns is None:
            found.append(Seen(client=client, groups=groups, age_ms=max(0, now_ms - client.seen_at_ms)))
    return found


def names_of(owners: Iterable[int]) -> dict[int, str]:
    """Return the names of those of the clients that have one, and sent a heartbeat within a day."""
    named = Client.objects.filter(pk__in=set(owners)).exclude(name="")
    return dict(named.values_list("pk", "name"))


def by_group(clients: Iterable[Seen], groups: Container[str]) -> dict[str, list[Seen]]:
    """Return the clients that have named each of these groups, without groups that none has named."""
    found: dict[str, list[Seen]] = {}
    for client in clients:
        for group in client.groups:
            if group in groups:
                found.setdefault(group, []).append(client)
    return found


def done_per_minute() -> dict[int, float]:
    """Return the tasks that each client finished per minute, by client id, over the last ten full minutes.

    A task is finished when a commit ends its lease without giving it back. Clients that finished none are left out.
    For a client that started within the ten minutes, the minutes before count as idle.
    """
    minute = Task.objects.now_ms() // MINUTE_MS
    lately = WorkDone.objects.filter(minute__gte=minute - DONE_MINUTES, minute__lt=minute)
    sums = lately.values_list("client").annotate(Sum("tasks"))
    return {client: tasks / DONE_MINUTES for client, tasks in sums}


FEW_GROUPS = 500  # With more groups that have leases, one scan of all tasks is faster.


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    tasks: int
    since_ms: int | None  # The start or last renewal of the oldest lease; None: there is none.


NOTHING = Holding(tasks=0, since_ms=None)


def held_by(client_id: int, most: int) -> list[tuple[str, Holding]]:
    """Return the leases of a client by group, the one with most first."""
    by_group = (
        _claimed()
        .filter(owner=client_id)
        .values_list("group")
        .annotate(tasks=Count("id"), since=Min("leased_since_ms"))
    )
    found = by_group.order_by("-tasks", "group")[:most]
    return [(group, Holding(tasks=tasks, since_ms=since_ms)) for group, tasks, since_ms in found]


def done_by(client_id: int, minutes: int) -> list[int]:
    """Return how many tasks a client finished in each of the last full minutes, the oldest first."""
    end = Task.objects.now_ms() // MINUTE_MS
    rows = WorkDone.objects.filter(client=client_id, minute__gte=end - minutes, minute__lt=end)
    done = dict(rows.values_list("minute").annotate(Sum("tasks")))
    return [done.get(minute, 0) for minute in range(end - minutes, end)]


def holders_in(group: str, most: int) -> list[tuple[int, Holding]]:
    """Return who leases tasks of a group, also those whose lease has expired: by client id, the one with most first."""
    held = Task.objects.get_queryset().in_group(group).filter(leased_since_ms__gt=0)
    by_owner = held.values_list("owner").annotate(tasks=Count("id"), since=Min("leased_since_ms"))
    found = by_owner.order_by("-tasks", "owner")[:most]
    return [(owner, Holding(tasks=tasks, since_ms=since_ms)) for owner, tasks, since_ms in found]


def _claimed() -> TaskQuerySet:
    claimed = Task.objects.get_queryset().claimed(Task.objects.now_ms())
    groups = leased(FEW_GROUPS + 1)
    return claimed.filter(group__in=groups) if len(groups) <= FEW_GROUPS else claimed


def holdings() -> dict[int, Holding]:
    """Return the leases by client id, without clients that have none."""
    by_owner = _claimed().values_list("owner").annotate(Count("id"), Min("leased_since_ms")).order_by()
    return {owner: Holding(tasks=tasks, since_ms=since_ms) for owner, tasks, since_ms in by_owner}
