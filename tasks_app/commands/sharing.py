"""How the lists of a project are shared among its workers, so that none is idle while commands wait."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from django.db.models import Q

from taskstore.types.command_record import CommandStatus, place_of
from taskstore.types.groups import LATE_MS, ClientStatus

from ..models import Client, Task
from ..reading import clients
from . import summaries


class Load(NamedTuple):
    """The work of a group of open lists, and the workers for it."""

    commands: int  # In all running lists.
    slots: int  # How many lists all live workers together run at once.
    free: int  # The slots without a list.

    @property
    def share(self) -> int:
        """How many commands each slot has when all have the same number."""
        return max(1, -(-self.commands // max(1, self.slots)))


NO_LOAD = Load(0, 0, 0)


def hear(client: Client) -> ClientStatus:
    """Store a heartbeat. The answer says how much a worker should keep of each list, if others are idle."""
    waiting = info_of(client).get("waiting")
    groups = [each for each in waiting if isinstance(each, str)] if isinstance(waiting, list) else []
    heard = clients.hear(client)
    loads = {group: load_of(group) for group in groups if is_open_group(group) and group in client.groups}
    return heard.as_answer(keep={group: load.share for group, load in loads.items() if load.free})


def is_open_group(group: str) -> bool:
    place = place_of(group)
    return place is not None and place[1] == CommandStatus.OPEN


def load_of(group: str) -> Load:
    """Return the load of a group of open lists; none while a list is open, which idle workers get first."""
    now_ms = Task.objects.now_ms()
    lists = Task.objects.get_queryset().in_group(group)
    if lists.available(now_ms).exists():
        return NO_LOAD
    leased = Q(available_at_ms__gt=now_ms, leased_since_ms__gt=0)
    held = Counter(lists.filter(leased).values_list("owner", flat=True))
    sizes: Any = lists.values_list("id", "labels")  # Their type does not have our query set's methods.
    commands = sum(summaries.sizes_of(task_id, labels)[0] for task_id, labels in sizes.of_one_moment())
    slots = slots_by_client(group, now_ms)
    free = sum(max(0, number - held[client_id]) for client_id, number in slots.items())
    return Load(commands, sum(slots.values()), free)


def slots_by_client(group: str, now_ms: int) -> Mapping[int, int]:
    """Return how many lists of the group each live worker runs at once, by client id."""
    heard: Iterable[Client] = Client.objects.filter(seen_at_ms__gte=now_ms - LATE_MS)
    return {each.pk: slots_of(each) for each in heard if group in each.groups}


def slots_of(client: Client) -> int:
    said = info_of(client).get("slots", 1)
    return said if type(said) is int and said >= 0 else 1


def info_of(client: Client) -> Mapping[str, object]:
    """Return what a client said, which may be any object."""
    said: Mapping[str, object] = json.loads(client.info)
    return said
