"""Publish the output of running commands. The heartbeat thread writes it for all lists of a worker."""

from __future__ import annotations

import logging
import threading
import time

from ..errors import CommitRefused
from ..types.command_record import Command, LiveOutput, live_labels, output_group
from ..types.tasks import Change, NewTask
from ..worker.lease_keeper import Outage, named
from ..worker.store import Store
from .messages import Wrote
from .work import Work

logger = logging.getLogger(__name__)

WRITE_EVERY_S = 1.0
CHECK_EVERY_S = 10.0  # Check that the worker still holds a list when no write has shown it.


class OutputTask:
    """The task that carries the output of a list. Each write replaces it."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.task_id = 0  # 0: not written yet.
        self.is_gone = False  # Someone deleted it, so it is not written again.
        self.written: tuple[int, Wrote | None] | None = None  # The content of the last write.
        self.seen_at = time.monotonic()  # When the worker last knew that it held the list.


class Live:
    """The lists whose output is published. One thread calls `write` every second."""

    def __init__(self, store: Store, outage: Outage) -> None:
        self._store, self._outage = store, outage
        self._shown: dict[Work, OutputTask] = {}
        self._writing: Work | None = None  # Of the commit under way.
        self._change = threading.Condition()  # Guards the two above.

    def show(self, work: Work) -> None:
        with self._change:
            self._shown[work] = OutputTask(work)

    def let_go(self, work: Work) -> list[int]:
        """Stop publishing a list, after a write under way. Returns the ids of the tasks that carry its output."""
        with self._change:
            shown = self._shown.pop(work, None)
            self._change.wait_for(lambda: self._writing is not work)
        return [shown.task_id] if shown and shown.task_id else []

    def write(self) -> None:
        for shown in list(self._shown.values()):
            with self._change:
                if shown.work not in self._shown or shown.work.lost.is_set():
                    continue
                self._writing = shown.work
            try:
                self._write(shown)
            finally:
                with self._change:
                    self._writing = None
                    self._change.notify_all()

    def _write(self, shown: OutputTask) -> None:
        news, live = (len(shown.work.runs), shown.work.wrote), shown.work.live()
        try:
            if live and news != shown.written and not shown.is_gone:
                self._commit(shown, *live)
                shown.written = news
            elif time.monotonic() > shown.seen_at + CHECK_EVERY_S:
                if not shown.work.is_renewed and self._store.tasks([shown.work.task.id]) == [None]:
                    shown.work.lost.set()
                shown.seen_at = time.monotonic()
        except CommitRefused as refused:
            if shown.work.task.id in refused.refusal.depends:
                shown.work.lost.set()
            elif shown.task_id in named(refused.refusal):
                shown.task_id, shown.is_gone = 0, True
            else:
                logger.warning("list %s: can't show its live output: %s", shown.work.commands.name, refused)
                shown.is_gone = True
        except Exception as problem:  # Live output is optional, and a later write may succeed.
            self._outage.begin(problem)
        else:
            self._outage.end()

    def _commit(self, shown: OutputTask, command: Command, live: LiveOutput) -> None:
        data, labels = live.encode(), live_labels(live, command)
        # The id of a renewed list changes, and the thread that renews it notices a loss anyway.
        depends = () if shown.work.is_renewed else (shown.work.task.id,)
        if shown.task_id:
            change = Change(id=shown.task_id, data=data, error="", labels=labels)
            [task] = self._store.commit(updates=[change], depends=depends)
        else:
            new = NewTask(group=output_group(shown.work.project), data=data, labels=labels)
            [task] = self._store.commit(adds=[new], depends=depends)
        shown.task_id, shown.seen_at = task.id, time.monotonic()
