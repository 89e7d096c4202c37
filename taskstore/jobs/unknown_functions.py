"""Jobs of functions that a worker does not have: it leaves them to others, as in a deploy, where old workers meet new
jobs and new workers old ones. A worker that has the function has them back in their places.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..types.job_record import FUNCTION_LABEL, LEFT_LABEL, Attempt, How, JobError, JobRecord, NotAJob
from ..types.tasks import Change
from ..worker.settling import Entry
from .verdicts import now_ms

if TYPE_CHECKING:
    from ..types.tasks import Task
    from ..worker.store import ClientStatus, Store

logger = logging.getLogger(__name__)

INFO = "unknown_functions"  # The member of a heartbeat's info.
REMEMBERED_S = 60.0  # Then a process is asked again.
MOST_TOLD = 50
LOOK_EVERY_S = 60.0
MOST_EXCLUDED = 20
MOST_AT_ONCE, FEW = 200, 4  # To bring forward at a time; the few: while all places are taken.


class UnknownFunctions:
    """What a worker has met and does not have. `known`: returns what it has. `is_idle`: whether it could run a job."""

    def __init__(
        self,
        store: Store,
        groups: Sequence[str],
        known: Callable[[], Mapping[str, object]],
        is_idle: Callable[[], bool],
    ) -> None:
        self._store, self._groups, self._known, self._is_idle = store, groups, known, is_idle
        self._errors: dict[str, tuple[float, JobError]] = {}  # By function, the latest last.
        self._told: set[str] = set()
        self._of_others: list[str] = []  # Functions of jobs to leave where they are.
        self._looks_at = 0.0

    def note(self, function: str, error: JobError) -> None:
        self._errors.pop(function, None)
        self._errors[function] = time.monotonic(), error
        if function not in self._told:
            self._told.add(function)
            logger.warning("jobs of %s are left to other workers: %s", function, error.message)

    def attempt_at(self, function: str, place: Attempt) -> Attempt | None:
        """Return the attempt at a job just claimed, if a process has said of late that it lacks the function."""
        noted_at, error = self._errors.get(function, (-REMEMBERED_S, None))
        if error is None or time.monotonic() > noted_at + REMEMBERED_S:
            return None
        at_ms = now_ms()
        return Attempt(
            started=at_ms, ended=at_ms, how=How.GIVEN_BACK, worker=place.worker, host=place.host, error=error
        )

    def info(self) -> Sequence[str]:
        return list(self._errors)[-MOST_TOLD:]

    def bring_forward(self, clients: Iterable[ClientStatus]) -> Sequence[Entry]:
        """Return the changes of jobs that others left, and this worker has the functions and the time for.

        It looks at its start, now and then, and while another worker tells of a function that this one has.
        """
        known = self._known()
        is_told = any(name in known for each in clients for name in _names(each.info.get(INFO)))
        if not is_told and time.monotonic() < self._looks_at:
            return ()
        self._looks_at = time.monotonic() + LOOK_EVERY_S
        entries = list[Entry]()
        for group in self._groups:
            if (most := (MOST_AT_ONCE if self._is_idle() else FEW) - len(entries)) <= 0:
                break
            others = "".join(f' -label.{FUNCTION_LABEL}:"{name}"' for name in self._of_others)
            query = f'group:"{group}" state:scheduled label:{LEFT_LABEL}{others}'
            for task in self._store.search(query, limit=most).tasks:
                function, left = task.labels.get(FUNCTION_LABEL, ""), _left(task)
                if function not in known:
                    self._of_others = [*dict.fromkeys([*self._of_others, function])][-MOST_EXCLUDED:]
                elif left:
                    labels = {name: value for name, value in task.labels.items() if name != LEFT_LABEL}
                    entries.append(Entry.of(Change(id=task.id, timespec_ms=left.started, labels=labels)))
        return entries


def _left(task: Task) -> Attempt | None:
    try:
        return JobRecord.decode(task.data).lacks_function
    except NotAJob:  # Others may add any task with this label.
        return None


def _names(told: object) -> Sequence[str]:
    return [each for each in told if isinstance(each, str)] if isinstance(told, list | tuple) else ()
