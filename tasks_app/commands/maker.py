"""What a server process does for commands all the time: lists are made, closed ones settled, what is old put away."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from taskstore.types.command_record import LIST_LABEL, CommandStatus, group_of, output_group
from taskstore.types.tasks import NOBODY

from ..models import Task
from ..writer.background import BackgroundLoop
from .bundling import make_lists, process_closed
from .changes import archive_old, by_pieces
from .records import pages_of, projects

PAUSE_S = 0.5
TIDIED_EVERY_S = 10.0


class ListMaker(BackgroundLoop):
    """Beside the writer of each server process that takes commands."""

    def __init__(self) -> None:
        self._tidied_s = float("-inf")
        super().__init__("command lists", self._make_and_settle)

    async def _make_and_settle(self) -> float:
        if time.monotonic() > self._tidied_s + TIDIED_EVERY_S:
            self._tidied_s = time.monotonic()
            await self.aside(tidy)
        return 0.0 if await self.aside(look_after) else PAUSE_S


def look_after() -> bool:
    """Settle closed lists and make new ones, of each project some. Says whether there was anything to do."""
    # In this order: what failed a moment ago may be among the new ones then.
    done = [process_closed(project) + make_lists(project) for project in projects()]
    return any(done)


def tidy() -> None:
    """Put away what was completed long ago, and delete what workers that died have left."""
    for project in projects():
        archive_old(project)
        delete_leftovers(project)


def delete_leftovers(project: str) -> int:
    """Delete what was written by commands whose list is not running any more, or by another worker than now.

    Returns how many tasks that were.
    """
    # First the outputs: what is written after this look is no leftover, as its list is running then.
    outputs = list(_outputs(project))
    begun_ms = _running(project)
    left = [task_id for task_id, name, made_at_ms in outputs if made_at_ms < begun_ms.get(name, made_at_ms + 1)]
    return by_pieces([left], _delete)


def _outputs(project: str) -> Iterable[tuple[int, str, int]]:
    for ids in pages_of(Task.objects.group(output_group(project), owned=True)):
        found = Task.objects.get_queryset().filter(id__in=ids).values_list("id", "labels", "made_at_ms")
        for task_id, labels, made_at_ms in found:
            yield task_id, labels.get(LIST_LABEL, ""), made_at_ms


def _running(project: str) -> dict[str, int]:
    """When the lease of each running list began, by name."""
    tasks = Task.objects.get_queryset().in_group(group_of(project, CommandStatus.OPEN))
    found = tasks.claimed(Task.objects.now_ms()).values_list("labels", "leased_since_ms")
    return {labels.get(LIST_LABEL, ""): since_ms for labels, since_ms in found}


def _delete(ids: Sequence[int]) -> int:
    Task.objects.commit(owner=NOBODY, deletes=ids)
    return len(ids)
