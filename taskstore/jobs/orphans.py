"""Free the jobs of workers that died on this machine, before their leases end."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from ..types.job_record import Attempt, JobRecord, queue_of
from ..types.tasks import Change, NewTask
from ..worker.process_tree import has_ended, machine
from ..worker.settling import Entry, Settling
from ..worker.store import ClientStatus, Store
from .verdicts import change_of, lost_while_held, now_ms

if TYPE_CHECKING:
    from ..types.tasks import Task

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
LOOKS = 2  # A dead worker is checked twice, because its last claim may have been in progress.
MOST_AT_ONCE = 100


class Found(Protocol):
    @property
    def tasks(self) -> Sequence[Task]: ...


class JobStore(Store, Protocol):
    """The methods that a job worker needs. It also searches for the jobs of other workers."""

    def search(self, query: str = "", *, limit: int = 50) -> Found: ...


class Orphans:
    """Finds dead workers and gives back the jobs that they hold."""

    def __init__(self, store: JobStore, groups: Collection[str], settling: Settling) -> None:
        self._store, self._groups, self._settling = store, frozenset(groups), settling
        self._looks: Counter[int] = Counter()  # By client id.

    def look(self) -> None:
        for heard in self._store.clients():
            if not is_dead(heard) or self._looks[heard.client_id] >= LOOKS:
                continue
            changes = [change for task in self._held_by(heard.client_id) if (change := given_back(task, heard))]
            if changes:
                logger.warning(
                    "worker %s (process %s) is dead: other workers get its jobs (%d)",
                    heard.name,
                    heard.pid,
                    len(changes),
                )
            # A refusal means that another worker was faster, which is fine.
            self._settling.write([Entry.of(change) for change in changes], client_id=heard.client_id)
            self._looks[heard.client_id] += 1

    def _held_by(self, client_id: int) -> Iterator[Task]:
        for group in self._groups:
            query = f'group:"{group}" state:claimed owner:{client_id}'
            found = self._store.search(query, limit=MOST_AT_ONCE).tasks
            yield from (task for task in found if task.owner == client_id and task.group in self._groups)


def is_dead(heard: ClientStatus) -> bool:
    """Whether the worker ran on this machine and its process has ended without a goodbye."""
    known = heard.info.get("machine") == machine() and not heard.info.get("stopped")
    return bool(known and heard.pid and has_ended(heard.pid, heard.info.get("born")))


def given_back(task: Task, heard: ClientStatus) -> NewTask | Change | None:
    """Return the change that retries the job of a dead worker or reports it failed, as its options say."""
    queue = queue_of(task.group)
    otherwise = Attempt(worker=heard.name, host=heard.host)
    try:
        verdict = lost_while_held(task, JobRecord.decode(task.data), now_ms(), otherwise)
        return change_of(task, queue, verdict) if queue and verdict else None
    except (TypeError, ValueError):  # Such as NotAJob. The next worker that claims it moves it to the failed group.
        return None
