"""Free the tasks of workers that died on this machine, before their leases end."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from ..types.tasks import Change, NewTask
from .process_tree import has_ended, machine
from .settling import Entry, Settling
from .store import ClientStatus, Store

if TYPE_CHECKING:
    from ..types.tasks import Task

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
LOOKS = 2  # A dead worker is checked twice, because its last claim may have been in progress.
MOST_AT_ONCE = 100


class Orphans:
    """Finds dead workers and gives back the tasks that they hold. `what`: what these are called.

    `given_back` returns the change of a task that a worker held.
    """

    def __init__(
        self,
        store: Store,
        groups: Collection[str],
        settling: Settling,
        what: str,
        given_back: Callable[[Task, ClientStatus], NewTask | Change | None],
    ) -> None:
        self._store, self._groups, self._settling = store, frozenset(groups), settling
        self._what, self._given_back = what, given_back
        self._looks: Counter[int] = Counter()  # By client id.

    def look(self) -> Sequence[ClientStatus]:
        """Look once, and return all clients."""
        clients = self._store.clients()
        for heard in clients:
            if not is_dead(heard) or self._looks[heard.client_id] >= LOOKS:
                continue
            changes = [change for task in self._held_by(heard.client_id) if (change := self._given_back(task, heard))]
            if changes:
                logger.warning(
                    "worker %s (process %s) is dead: other workers get its %s (%d)",
                    heard.name,
                    heard.pid,
                    self._what,
                    len(changes),
                )
            # A refusal means that another worker was faster, which is fine.
            self._settling.write([Entry.of(change) for change in changes], client_id=heard.client_id)
            self._looks[heard.client_id] += 1
        return clients

    def _held_by(self, client_id: int) -> Iterator[Task]:
        for group in self._groups:
            query = f'group:"{group}" state:claimed owner:{client_id}'
            found = self._store.search(query, limit=MOST_AT_ONCE).tasks
            yield from (task for task in found if task.owner == client_id and task.group in self._groups)


def is_dead(heard: ClientStatus) -> bool:
    """Whether the worker ran on this machine and its process has ended without a goodbye."""
    known = heard.info.get("machine") == machine() and not heard.info.get("stopped")
    return bool(known and heard.pid and has_ended(heard.pid, heard.info.get("born")))
