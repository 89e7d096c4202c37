"""What running commands have written so far is shown: the thread that reports writes it, for all lists of a worker."""

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
LOOK_EVERY_S = 10.0  # Whether the lists are still ours, when nothing was written by which that would have shown.


class OutputTask:
    """A list whose output is shown, as one task that is replaced."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.task_id = 0  # 0: there is none.
        self.is_gone = False  # Somebody has deleted it: then it stays so.
        self.told: tuple[int, Wrote | None] | None = None  # What of it was written last.
        self.seen_at = time.monotonic()  # When the list was ours for certain.


class Live:
    """Lists whose output is shown. `write` is called every second, by one thread."""

    def __init__(self, store: Store, outage: Outage) -> None:
        self._store, self._outage = store, outage
        self._shown: dict[Work, OutputTask] = {}
        self._writing: Work | None = None  # Of the commit that is under way.
        self._change = threading.Condition()  # Of the two above.

    def show(self, work: Work) -> None:
        with self._change:
            self._shown[work] = OutputTask(work)

    def let_go(self, work: Work) -> list[int]:
        """From now on nothing of it is written. The ids of the tasks that showed it."""
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
            if live and news != shown.told and not shown.is_gone:
                self._commit(shown, *live)
                shown.told = news
            elif time.monotonic() > shown.seen_at + LOOK_EVERY_S:
                self._look(shown)
        except CommitRefused as refused:
            self._refused(shown, refused)
        except Exception as problem:  # A later one may come through, and nothing depends on it.
            self._outage.begin(problem)
        else:
            self._outage.end()

    def _commit(self, shown: OutputTask, command: Command, live: LiveOutput) -> None:
        data, labels = live.encode(), live_labels(live, command)
        # A list that is renewed has another id from time to time; whoever renews it hears when it is lost.
        depends = () if shown.work.is_renewed else (shown.work.task.id,)
        if shown.task_id:
            change = Change(id=shown.task_id, data=data, error="", labels=labels)
            [task] = self._store.commit(updates=[change], depends=depends)
        else:
            new = NewTask(group=output_group(shown.work.project), data=data, labels=labels)
            [task] = self._store.commit(adds=[new], depends=depends)
        shown.task_id, shown.seen_at = task.id, time.monotonic()

    def _look(self, shown: OutputTask) -> None:
        if not shown.work.is_renewed and self._store.tasks([shown.work.task.id]) == [None]:
            shown.work.lost.set()
        shown.seen_at = time.monotonic()

    def _refused(self, shown: OutputTask, refused: CommitRefused) -> None:
        if shown.work.task.id in refused.refusal.depends:
            shown.work.lost.set()
        elif shown.task_id in named(refused.refusal):
            shown.task_id, shown.is_gone = 0, True
        else:
            logger.warning("list %s: what it writes is not shown: %s", shown.work.commands.name, refused)
            shown.is_gone = True
