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
from ..core.operations import EVERY_GROUP, GroupScope
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


def recently_cancelled() -> tuple[int, list[tuple[int, int, int, str]]]:
    """Return the time, and id, time, owner and group of each leased task that was cancelled within the last minute."""
    now_ms = Task.objects.now_ms()
    young = CancelledTask.objects.filter(at_ms__gt=now_ms - TOLD_MS)
    return now_ms, list(young.order_by("at_ms", "id").values_list("id", "at_ms", "owner", "group"))


class Watch:
    """What this process has seen of cancelled tasks. It looks while somebody waits: one query for all of them."""

    def __init__(self) -> None:
        self._name = secrets.token_hex(4)  # Another process has seen them in another order.
        # By id and time: the owner, the group, and a number in the order in which they came.
        self._seen: dict[tuple[int, int], tuple[int, str, int]] = {}
        self._count = 0
        self._looked_s = 0.0

    async def cancelled(self, owner: int, after: str, wait_ms: int, scope: GroupScope = EVERY_GROUP) -> Cancelled:
        """Return the tasks of the client that were cancelled since `after`; waits so long until there is one.

        It leaves out tasks of groups that the scope does not allow.
        """
        until_s = time.monotonic() + wait_ms / 1_000
        name, _, number = after.partition("-")
        since = int(number) if name == self._name and number.isdecimal() else 0
        while True:
            if not wait_ms or time.monotonic() > self._looked_s + LOOK_EVERY_S:
                await self._look()
            ids = [
                task_id
                for (task_id, _), (its, group, place) in self._seen.items()
                if its == owner and place > since and scope.allows(group)
            ]
            left_s = until_s - time.monotonic()
            if ids or left_s <= 0 or readiness.is_withdrawn:
                return Cancelled(ids=tuple(ids), after=f"{self._name}-{self._count}")
            await asyncio.sleep(min(left_s, LOOK_EVERY_S))

    async def _look(self) -> None:
        self._looked_s = time.monotonic()  # Others that wait leave it to this one.
        now_ms, found = await in_a_database_thread(recently_cancelled)
        # Not only what was found: of two looks at once, the first to begin may be the last to end.
        self._seen = {key: seen for key, seen in self._seen.items() if key[1] > now_ms - TOLD_MS}
        for task_id, at_ms, owner, group in found:
            if (task_id, at_ms) not in self._seen:
                self._count += 1
                self._seen[task_id, at_ms] = owner, group, self._count


watch = Watch()
