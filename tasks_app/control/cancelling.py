"""Cancel tasks, and tell the workers that held them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Sequence

from taskstore.types.scalars import Action
from taskstore.types.tasks import Cancelled

from ..access import audit
from ..core.actors import PROGRAM, Actor
from ..database import atomic
from ..models import CancelledTask, Task
from ..offload.threads import in_a_database_thread
from ..writer.peers import readiness

LOOK_EVERY_S = 0.5
TOLD_MS = 60_000  # For how long a client is told.
IDS_IN_AUDIT = 500


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


def recently_cancelled() -> list[tuple[int, int]]:
    """Return the owners and the ids of the leased tasks that were cancelled within the last minute."""
    young = CancelledTask.objects.filter(at_ms__gt=Task.objects.now_ms() - TOLD_MS)
    return list(young.order_by("at_ms", "id").values_list("owner", "id"))


class Watch:
    """What this process has seen of cancelled tasks. It looks while somebody waits: one query for all of them."""

    def __init__(self) -> None:
        self._name = secrets.token_hex(4)  # Another process has seen them in another order.
        self._seen: dict[int, tuple[int, int]] = {}  # By id: the owner, and a number in the order in which they came.
        self._count = 0
        self._looked_s = 0.0

    async def cancelled(self, owner: int, after: str, wait_ms: int) -> Cancelled:
        """Return the tasks of the client that were cancelled since `after`; waits so long until there is one."""
        until_s = time.monotonic() + wait_ms / 1_000
        name, _, number = after.partition("-")
        since = int(number) if name == self._name and number.isdecimal() else 0
        while True:
            if not wait_ms or time.monotonic() > self._looked_s + LOOK_EVERY_S:
                await self._look()
            ids = [task_id for task_id, (its, place) in self._seen.items() if its == owner and place > since]
            left_s = until_s - time.monotonic()
            if ids or left_s <= 0 or readiness.is_withdrawn:
                return Cancelled(ids=tuple(ids), after=f"{self._name}-{self._count}")
            await asyncio.sleep(min(left_s, LOOK_EVERY_S))

    async def _look(self) -> None:
        self._looked_s = time.monotonic()  # Others that wait leave it to this one.
        found = await in_a_database_thread(recently_cancelled)
        before, self._seen = self._seen, {}
        for owner, task_id in found:
            self._count += task_id not in before
            self._seen[task_id] = before.get(task_id, (owner, self._count))


watch = Watch()
