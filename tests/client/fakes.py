"""A store that fails when it is told to: what a real one does only now and then."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from typing import Any

from taskstore import Task
from taskstore.errors import CommitRefused
from taskstore.types.tasks import Cancelled, Change, Refusal


class FakeStore:
    """Renews what it is asked to, unless it is away or the task is gone. It gives out no tasks."""

    id = 1

    def __init__(self) -> None:
        self.problem: Exception | None = None  # Set: it is raised by every call.
        self.gone: set[int] = set()
        self.commits: list[list[int]] = []  # The ids that each was asked to renew.
        self.reports: list[tuple[int, float, str]] = []  # Of progress.
        self._ids = itertools.count(100)

    def commit(self, *, updates: Iterable[Change] = (), **_: Any) -> list[Task]:
        ids = [change.id for change in updates]
        self.commits.append(ids)
        self._fail_if_told()
        if missing := tuple(self.gone.intersection(ids)):
            raise CommitRefused(Refusal(changes=missing))
        return [Task.make(next(self._ids), group="mail") for _ in ids]

    def claim(self, *_: Any, **__: Any) -> list[Task]:
        self._fail_if_told()
        time.sleep(0.01)
        return []

    def cancelled(self, **_: Any) -> Cancelled:
        return Cancelled(ids=())

    def heartbeat(self, **_: Any) -> None:
        self._fail_if_told()

    def report_progress(self, id: int, done: float, text: str = "") -> None:
        self._fail_if_told()
        self.reports.append((id, done, text))

    def history(self, id: int) -> None:
        return None

    def tasks(self, ids: Iterable[int]) -> list[Task | None]:
        return [None for _ in ids]

    def clients(self) -> list[Any]:
        return []

    def search(self, query: str = "", *, limit: int = 50, after: str | None = None) -> Any:
        raise NotImplementedError

    def _fail_if_told(self) -> None:
        if self.problem:
            raise self.problem
