"""One of the lists that a worker has in hand at a time: a thread that claims it, has it run, and closes it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..client.errors import TooOften
from ..errors import CommitRefused, InvalidInput, StoreBusy, StoreUnavailable
from ..types.command_record import CommandList, NotACommand, Output, Run, place_of
from ..types.tasks import Order as ClaimOrder
from ..worker.handlers import Result
from ..worker.lease_keeper import Held, Keeper, named, nothing, renewal
from ..worker.store import Store
from .clock import Clock
from .closing import Finished, closed, given_back, laid_aside
from .live import Live
from .messages import Order, Ran, Setup
from .runner_link import RunnerDied, RunnerLink
from .stopping import Stopping
from .work import Times, Work

if TYPE_CHECKING:
    from ..types.tasks import Task

logger = logging.getLogger(__name__)

AWAY = (StoreUnavailable, StoreBusy, TooOften)
SOON_S = 1.0  # Until a store that is away is tried again.
CLOSE_EARLY_S = 5.0  # Before the end of a lease, at most; a tenth of it when that is less.
KILLED = 137


class Slot:
    """`keeper`: who renews the leases; None: nobody does."""

    def __init__(
        self,
        store: Store,
        groups: Sequence[str],
        setup: Setup,
        times: Times,
        *,
        keeper: Keeper | None,
        live: Live,
        stopping: Stopping,
        wait_ms: int,
    ) -> None:
        self._store, self._groups, self._setup, self._times = store, groups, setup, times
        self._keeper, self._live, self._stopping, self._wait_ms = keeper, live, stopping, wait_ms
        self._outage = live.outage
        self._link = RunnerLink(setup)
        self._claimed_ms = round(times.least_lease_s * 1_000)
        self.work: Work | None = None  # What it has in hand.

    def run(self) -> None:
        """Until it is stopped. Raises what can only get worse: NotAllowed, say."""
        while not self._stopping.has_begun:
            for task in self._claim():
                self._do(task)
        self._link.end()

    def kill(self) -> None:
        """What runs, from another thread."""
        self._link.kill()

    def _claim(self) -> list[Task]:
        """One list; nothing when there is none, or the store is away."""
        try:
            tasks = self._store.claim(
                self._groups, duration_ms=self._claimed_ms, wait_ms=self._wait_ms, order=ClaimOrder.OLDEST
            )
        except AWAY as problem:
            self._outage.begin(problem)
            self._stopping.wait(getattr(problem, "retry_after_s", SOON_S))
            return []
        self._outage.end()
        return tasks

    def _do(self, task: Task) -> None:
        claimed_at, clock = time.monotonic(), Clock.of_claim(task, self._claimed_ms)
        project, _ = place_of(task.group) or ("", "")
        try:
            commands = list_of(task)
        except NotACommand as problem:
            logger.error("task %d of %s is laid aside: %s", task.id, task.group, problem)
            self._settle(laid_aside(task, project, str(problem)))
            return
        if self._stopping.has_begun:
            self._settle(given_back(task))
            return
        self.work = self._begun(task, project, commands, claimed_at, clock)
        if not self.work.lost.is_set():
            self._live.show(self.work)
            self._run(self.work)
            self._close(self.work)
        self.work = None

    def _begun(self, task: Task, project: str, commands: CommandList, claimed_at: float, clock: Clock) -> Work:
        """With a lease for as long as its commands may take."""
        lease_s = self._times.lease_s(commands, task.claims)
        work = Work(
            project=project,
            commands=commands,
            worker=self._setup.worker,
            held=Held(task, nothing),
            clock=clock,
            started=clock.now_s(),
            lease_ends_at=claimed_at + self._times.least_lease_s,
            lease_s=lease_s,
        )
        if self._keeper:
            work.held, work.lease_ends_at = self._keeper.keep(task, work.lost.set), math.inf
        elif lease_s > self._times.least_lease_s:
            self._extend(work)
        return work

    def _extend(self, work: Work) -> None:
        asked_at = time.monotonic()
        try:
            [work.held.task] = self._store.commit(updates=[renewal(work.task, round(work.lease_s * 1_000))])
        except AWAY as problem:  # The shorter lease is ours.
            self._outage.begin(problem)
        except CommitRefused as refused:
            self._say_lost(work, refused)
            work.lost.set()
        else:
            work.lease_ends_at = asked_at + work.lease_s

    # ---- While it runs

    def _run(self, work: Work) -> None:
        limits = [(command, self._times.limit_s(command)) for command in work.commands.commands]
        ordered: Order | None = None
        try:
            for message in self._link.run(limits, work.clock):
                if message:
                    work.hear(message)
                if isinstance(message, Ran) and message.left:
                    logger.info("%s", _left(work, message))
                if (order := self._order_for(work)) and order is not ordered:
                    self._link.order(order)
                    ordered = order
        except RunnerDied as died:
            logger.error("list %s of %s: %s", work.commands.name, work.project, died)
            place = work.running_place()
            if place is not None and ordered is not Order.STOP:
                # Not tried again as if nothing had happened: it may be what has killed it.
                work.runs[place] = self._killed(str(died), work.clock.now_s())

    def _order_for(self, work: Work) -> Order | None:
        left_s = work.lease_left_s()
        if work.lost.is_set() or left_s <= 0 or self._stopping.grace_is_over:
            return Order.STOP
        if work.runs and left_s < min(CLOSE_EARLY_S, work.lease_s / 10):
            # What has been done is kept. A single command that takes longer has the next lease, which is longer.
            return Order.STOP
        return Order.FINISH if self._stopping.has_begun else None

    def _killed(self, text: str, now: int) -> Run:
        err = Output.of(f"{text}, and this command with it\n".encode())
        return Run(worker=self._setup.worker, started=now, ended=now, exit_code=KILLED, err=err)

    # ---- At its end

    def _close(self, work: Work) -> None:
        task = self._keeper.let_go(work.held) if self._keeper else work.task
        shown = self._live.let_go(work)
        if work.lost.is_set():
            self._say_lost(work, "it was taken away")
            self._settle(Result(deletes=shown))
            return
        if work.lease_left_s() <= 0:
            logger.warning("list %s of %s: its lease is over", work.commands.name, work.project)
        # Also then: nobody else may have claimed it yet.
        self._close_in_time(work, task, work.finished(), shown)

    def _close_in_time(self, work: Work, task: Task, finished: Finished, shown: Sequence[int]) -> None:
        """Waits for a store that is away, as long as the lease lasts."""
        while True:
            try:
                self._commit(closed(task, finished, shown))
                return
            except AWAY as problem:
                self._outage.begin(problem)
                if work.lease_left_s() <= 0 or self._stopping.left_s <= 0:
                    self._say_lost(work, problem)
                    return
                time.sleep(SOON_S)
            except CommitRefused as refused:
                if task.id in named(refused.refusal) or not shown:
                    self._say_lost(work, refused)
                    return
                shown = ()  # Somebody has deleted what showed it.
            except InvalidInput as problem:
                if finished.is_shortened:
                    logger.error("list %s of %s can't be closed: %s", work.commands.name, work.project, problem)
                    return
                finished = finished.without_most_output()

    def _settle(self, commit: Result) -> None:
        """If it can be done at once: it is seen to by itself otherwise, when a lease ends."""
        if not (commit.adds or commit.updates or commit.deletes):
            return
        try:
            self._commit(commit)
        except (*AWAY, CommitRefused) as problem:
            logger.debug("not done: %s", problem)

    def _commit(self, commit: Result) -> None:
        self._store.commit(adds=commit.adds, updates=commit.updates, deletes=commit.deletes)
        self._outage.end()

    def _say_lost(self, work: Work, why: object) -> None:
        logger.warning(
            "list %s of %s is no longer ours, and what came of it here is dropped: %s",
            work.commands.name,
            work.project,
            why,
        )


def list_of(task: Task) -> CommandList:
    """Raises NotACommand."""
    found = CommandList.decode(task.data)
    if not found.commands:
        raise NotACommand("this is a list without commands")
    return found


def _left(work: Work, ran: Ran) -> str:
    command = work.commands.commands[ran.place]
    processes = "1 process" if ran.left == 1 else f"{ran.left} processes"
    return f"command {command.id} of {work.project} left {processes} behind: killed"
