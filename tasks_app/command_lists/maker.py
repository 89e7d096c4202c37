"""What a server process does for commands all the time: lists are made, closed ones settled, what is old put away."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence

from asgiref.sync import sync_to_async
from django.db import Error, connections

from ..command_record import LIST_LABEL, CommandStatus, group_of, output_group
from ..errors import TaskStoreError
from ..models import Task
from ..operations import NOBODY
from .making import make_lists
from .moving import archive_old
from .pieces import by_pieces
from .processing import process_closed
from .reading import pages_of, projects

log = logging.getLogger(__name__)

PAUSE_S = 0.5
TIDIED_EVERY_S = 10.0


class ListMaker:
    """Beside the writer of each server process that takes commands: at work from its making on, on its loop."""

    is_busy = False  # Nobody waits: what it leaves another process goes on with.

    def __init__(self) -> None:
        self._ending = asyncio.Event()
        self._tidied_s = float("-inf")
        self._work = asyncio.ensure_future(self._go_on())

    def end(self) -> None:
        self._ending.set()

    async def ended(self) -> None:
        await self._work

    async def _go_on(self) -> None:
        while not self._ending.is_set():
            if not await self._try_round():
                await self._rest()

    async def _try_round(self) -> bool:
        """Whether there may be more to do at once."""
        try:
            return await sync_to_async(self._round, thread_sensitive=False)()
        except Exception as error:  # Whatever it is, what comes later must still be seen to.
            if not self._ending.is_set():
                _tell_of(error)
            return False

    def _round(self) -> bool:
        """In a thread that may never be used again."""
        try:
            is_time_to_tidy = time.monotonic() > self._tidied_s + TIDIED_EVERY_S
            self._tidied_s = time.monotonic() if is_time_to_tidy else self._tidied_s
            if is_time_to_tidy:
                tidy()
            return look_after()
        finally:
            connections.close_all()

    async def _rest(self) -> None:
        try:
            await asyncio.wait_for(self._ending.wait(), PAUSE_S)
        except TimeoutError:
            return


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


def _tell_of(error: Exception) -> None:
    if isinstance(error, TaskStoreError | Error):
        log.warning("lists of commands wait for the database: %s", error)
    else:
        log.error("lists of commands wait: %s", error, exc_info=error)
