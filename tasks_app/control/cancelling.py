"""Cancel tasks, and tell the workers that held them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from taskstore.types.scalars import Action
from taskstore.types.tasks import Cancelled

from ..access import audit
from ..core.actors import PROGRAM, Actor
from ..core.operations import EVERY_GROUP, GroupScope
from ..database import atomic
from ..models import CancelledTask, Task
from ..offload.threads import in_a_database_thread
from ..writer.peers import readiness

LOOK_EVERY_S = 0.5
TOLD_MS = 60_000  # For how long a client is told.
IDS_IN_AUDIT = 500
PLACES = 18  # Of a number.


@atomic()
def cancel(ids: Iterable[int], actor: Actor = PROGRAM) -> Sequence[int]:
    """Cancel tasks as `Task.objects.cancel` does, and record it for operators, who may end leases."""
    is_operator = actor.may(Action.OPERATE)
    done = Task.objects.cancel(ids, by=actor.name, reason=actor.reason, scope=actor.scope, ends_leases=is_operator)
    if done and is_operator:
        selection = f"{len(done)} tasks" if len(done) > 1 else f"task {done[0]}"
        details = {"ids": done[:IDS_IN_AUDIT]}
        audit.record(actor, "cancel", selection=selection, done=len(done), details=details)
    return done


def recently_cancelled() -> tuple[int, list[tuple[int, int, int, str]]]:
    """Return the time, and id, time, owner and group of each leased task that was cancelled within the last minute."""
    now_ms = Task.objects.now_ms()
    young = CancelledTask.objects.filter(at_ms__gt=now_ms - TOLD_MS)
    return now_ms, list(young.order_by("at_ms", "id").values_list("id", "at_ms", "owner", "group"))


@dataclass(slots=True)
class Waiting:
    """Who waits on an event loop: futures by client."""

    clients: dict[int, set[asyncio.Future[None]]] = field(default_factory=dict)
    told: int = 0  # Up to this number, each was told.
    watching: asyncio.Task[None] | None = None  # While somebody waits.
    look: asyncio.Task[None] | None = None  # That is under way,
    next_look: asyncio.Task[None] | None = None  # and the one after it.


class Watch:
    """What this process has seen of cancelled tasks. It looks while somebody waits: one query for all of them."""

    def __init__(self) -> None:
        self._name = secrets.token_hex(4)  # Another process has seen them in another order.
        # By client, then by id and time: the group, and a number in the order in which they came.
        self._seen: dict[int, dict[tuple[int, int], tuple[str, int]]] = {}
        self._count = 0
        self._looked_s = 0.0
        self._waiting = WeakKeyDictionary[asyncio.AbstractEventLoop, Waiting]()

    async def cancelled(self, owner: int, after: str, wait_ms: int, scope: GroupScope = EVERY_GROUP) -> Cancelled:
        """Return the tasks of the client that were cancelled since `after`; waits so long until there is one.

        It leaves out tasks of groups that the scope does not allow.
        """
        until_s = time.monotonic() + wait_ms / 1_000
        name, _, number = after.partition("-")
        since = int(number[:PLACES]) if name == self._name and number[:PLACES].isdecimal() else 0
        waiting = self._waiting.setdefault(asyncio.get_running_loop(), Waiting())
        if not wait_ms or time.monotonic() > self._looked_s + LOOK_EVERY_S:
            await self._look(waiting)
        while True:
            seen = self._seen.get(owner, {})
            ids = [task_id for (task_id, _), (group, place) in seen.items() if place > since and scope.allows(group)]
            left_s = until_s - time.monotonic()
            if ids or left_s <= 0 or readiness.is_withdrawn:
                return Cancelled(ids=tuple(ids), after=f"{self._name}-{self._count}")
            await self._news(owner, left_s, waiting)

    async def _news(self, owner: int, most_s: float, waiting: Waiting) -> None:
        """Wait until a task of the client is cancelled, for so many seconds at most."""
        if waiting.watching is None:
            waiting.watching = asyncio.ensure_future(self._watch(waiting))
        futures = waiting.clients.setdefault(owner, set())
        futures.add(future := asyncio.get_running_loop().create_future())
        try:
            async with asyncio.timeout(most_s):
                await future
        except TimeoutError:
            pass
        finally:
            futures.discard(future)
            if not futures and waiting.clients.get(owner) is futures:
                del waiting.clients[owner]

    async def _watch(self, waiting: Waiting) -> None:
        """Look until nobody waits, and wake the clients of which tasks were cancelled."""
        try:
            while waiting.clients and not readiness.is_withdrawn:
                await asyncio.sleep(LOOK_EVERY_S)
                await self._look(waiting)
                woken = [
                    owner
                    for owner, seen in self._seen.items()
                    if owner in waiting.clients and max(place for _, place in seen.values()) > waiting.told
                ]
                waiting.told = self._count
                _wake(waiting, woken)
        except Exception as error:
            _wake(waiting, [*waiting.clients], error)
        finally:
            waiting.watching = None
            _wake(waiting, [*waiting.clients])

    async def _look(self, waiting: Waiting) -> None:
        """Look, together with all who ask for it until the look under way has ended."""
        if waiting.next_look is None:
            waiting.next_look = asyncio.ensure_future(self._next_look(waiting, waiting.look))
        await asyncio.shield(waiting.next_look)

    async def _next_look(self, waiting: Waiting, last: asyncio.Task[None] | None) -> None:
        if last:
            await asyncio.wait([last])
        waiting.look, waiting.next_look = waiting.next_look, None
        self._looked_s = time.monotonic()
        now_ms, found = await in_a_database_thread(recently_cancelled)
        # Not only what was found: of two looks at once, the first to begin may be the last to end.
        young = {
            owner: {key: each for key, each in seen.items() if key[1] > now_ms - TOLD_MS}
            for owner, seen in self._seen.items()
        }
        self._seen = {owner: seen for owner, seen in young.items() if seen}
        for task_id, at_ms, owner, group in found:
            seen = self._seen.setdefault(owner, {})
            if (task_id, at_ms) not in seen:
                self._count += 1
                seen[task_id, at_ms] = group, self._count


def _wake(waiting: Waiting, clients: Iterable[int], error: Exception | None = None) -> None:
    for future in [future for client in clients for future in waiting.clients.pop(client, ())]:
        if not future.done():
            future.set_exception(error) if error else future.set_result(None)


watch = Watch()
