"""The progress of running tasks, as their owners report it (contract.md section 9).

It is stored beside the tasks and outside of their transactions, so it makes no successor and costs other clients
nothing. A server process keeps the last report of each task and writes once a second.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from django.db import Error, connections
from django.db.transaction import get_connection

from taskstore.errors import NotHeld, refuse
from taskstore.types.progress import Progress, problems_of
from taskstore.types.sentences import text

from ..core.operations import EVERY_GROUP, GroupScope, TaskRecord
from ..core.validation import refuse_forbidden_group, refuse_owner, task_ids
from ..database import Statement, atomic, dialect_of
from ..models import EndedTask, ProgressReport, Task
from ..writer.background import BackgroundLoop

EVERY_S = 1.0
IDLE_S = 3_600.0  # A report ends the pause.
AT_ONCE = 1_000  # Rows of a statement.
LATEST_BY_MS = 60_000  # A report that is older by more is newer: the clock was ahead at the other one.

log = logging.getLogger(__name__)


class Report(NamedTuple):
    """A row. It belongs to a lease, which `claims` identifies: the next worker starts without it."""

    origin: int
    claims: int
    done: float
    text: str
    at_ms: int


def report(
    task_id: int, *, owner: int, done: float, text: str = "", scope: GroupScope = EVERY_GROUP
) -> Progress | None:
    """Store the progress of a task, replacing the previous report. `task_id`: any id of its chain.

    A server writes the last of several reports at the end of the second. Returns None if the task is unknown or has
    ended. Raises NotHeld if it is not leased to `owner`; InvalidInput; Forbidden if this group may not be changed.
    """
    refuse([*task_ids("id", [task_id]), *problems_of(done, text), *_wrong(text)])
    refuse_owner(scope, owner)
    task = _living(task_id)
    if task is None or not scope.allows(task.group):
        return None
    refuse_forbidden_group(scope, task.group)
    if not task.leased:
        raise NotHeld(f"Task {task.id} is not leased, so nobody can report its progress.")
    if task.owner != owner:
        raise NotHeld(f"Task {task.id} is leased to client {task.owner}, not to client {owner}.")
    at_ms = Task.objects.now_ms()
    made = Report(task.origin, task.claims, float(done), text, at_ms)
    using = Task.objects.writing_alias
    reports = _running.get(using)
    if reports is None or get_connection(using).in_atomic_block or not reports.take(made):
        write([made], using)
    return Progress(done=made.done, text=text, at_ms=at_ms)


def _wrong(words: str) -> Iterable[tuple[str, str]]:
    # Only what no type can say: the database refuses lone surrogates.
    return text("text", words) if isinstance(words, str) and "\0" not in words else ()


def _living(task_id: int) -> Task | None:
    """Return the living task of the chain to which the id belongs."""
    tasks = Task.objects.get_queryset().defer("data")
    # The living task first: if it gets a successor meanwhile, the history knows its id.
    if living := tasks.filter(id=task_id).first():
        return living
    origin = EndedTask.objects.filter(id=task_id).values_list("origin", flat=True).first()
    return tasks.of_chain(task_id if origin is None else origin).first()


def progress_of(tasks: Iterable[Task | TaskRecord]) -> dict[int, Progress]:
    """Return the progress of those of the tasks whose present lease has any, by the origin of the task."""
    held = {task.origin: task.claims for task in tasks if task.leased}
    if not held:
        return {}
    found = ProgressReport.objects.filter(origin__in=held)
    return {
        row.origin: Progress(done=row.done, text=row.text, at_ms=row.at_ms)
        for row in found
        if row.claims == held[row.origin]
    }


def progress_of_origins(origins: Collection[int]) -> dict[int, Progress]:
    """As `progress_of`, of the tasks with these origins, also of those that have ended."""
    reported = list(ProgressReport.objects.filter(origin__in=origins).values_list("origin", flat=True))
    if not reported:
        return {}
    return progress_of(Task.objects.get_queryset().of_chains(reported).defer("data"))


def write(reports: Sequence[Report], using: str) -> None:
    """Write reports in place of older ones: two server processes may hold reports of the same task."""
    dialect = dialect_of(using)
    ordered = sorted(reports)  # Two processes that write the same rows must lock them in the same order.
    with atomic(using):
        for start in range(0, len(ordered), AT_ONCE):
            rows = ordered[start : start + AT_ONCE]
            places = ", ".join(["(%s, %s, %s, %s, %s)"] * len(rows))
            sql = f"""
                INSERT INTO tasks_app_progressreport (origin, claims, done, text, at_ms)
                VALUES {places}
                ON CONFLICT (origin) DO UPDATE
                SET claims = excluded.claims, done = excluded.done, text = excluded.text, at_ms = excluded.at_ms
                WHERE excluded.claims > tasks_app_progressreport.claims OR (
                    excluded.claims = tasks_app_progressreport.claims AND excluded.at_ms
                    NOT BETWEEN tasks_app_progressreport.at_ms - {LATEST_BY_MS} AND tasks_app_progressreport.at_ms - 1
                )
            """  # noqa: S608 - the text is ours.
            dialect.send([Statement(sql, [value for row in rows for value in row])])


class Reports(BackgroundLoop):
    """The last report of each task in this server process. Writes the first one at once, later ones after `every_s`."""

    def __init__(self, using: str = "default", *, every_s: float = EVERY_S) -> None:
        self._using = using
        self._every_s = every_s
        self._loop = asyncio.get_running_loop()
        self._latest: dict[int, Report] = {}
        self._turn = threading.Lock()
        self._is_closed = False
        super().__init__("progress", self._write, first_in_s=IDLE_S, least_rest_s=every_s)
        _running[using] = self

    def take(self, report: Report) -> bool:
        """Keep a report until it is written. Returns False if the server is stopping. Any thread may call it."""
        with self._turn:
            if self._is_closed:
                return False
            is_first = not self._latest
            self._latest[report.origin] = report
        if is_first:
            self._loop.call_soon_threadsafe(self.wake)
        return True

    async def ended(self) -> None:
        """Write what is left."""
        await super().ended()
        with self._turn:
            self._is_closed = True
        if _running.get(self._using) is self:
            del _running[self._using]
        await asyncio.to_thread(self._write_rest)

    async def _write(self) -> float:
        with self._turn:
            reports, self._latest = self._latest, {}
        try:
            if reports:
                await self.aside(write, list(reports.values()), self._using)
        except BaseException:
            with self._turn:
                self._latest = reports | self._latest  # Newer ones win.
            raise
        with self._turn:
            return self._every_s if self._latest else IDLE_S

    def _write_rest(self) -> None:
        try:
            if self._latest:
                write(list(self._latest.values()), self._using)
        except Error as error:
            log.warning("the latest progress reports are lost: %s", error)
        finally:
            connections.close_all()


_running: dict[str, Reports] = {}  # By the alias of the database.
