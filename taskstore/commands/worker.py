"""A worker of shell commands: it claims lists of them, and has its runners run them.

A thread for each list at a time claims it, and closes it. Another one shows what running commands write, and one renews
the leases, if that is asked for. The thread of `run` only sees to it that all comes to its end in time.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from ..errors import InvalidInput
from ..jobs.orphans import whereabouts
from ..types.command_record import CommandStatus, group_of, why_no_project
from ..worker.engine import stopping_by_signals
from ..worker.heartbeat import Heartbeat
from ..worker.lease_keeper import Keeper, Outage
from ..worker.store import Store
from .live import Live
from .messages import Setup
from .slot import Slot
from .stopping import Stopping
from .work import Times

logger = logging.getLogger(__name__)

OUTPUT_BYTES = 256 * 2**10
OUTPUT_RANGE = range(2**10, 2 * 2**20 + 1)
LIST_BYTES = 4 * 2**20  # Of outputs: then a list is closed, and others get the rest of it.
LOOK_S = 0.5  # How often the main thread wakes: a signal that another thread was given is handled only then.
CLAIM_S = 0.5  # For the answer to a claim that is on its way at the end.
WITHHELD = "TASKSTORE_TOKEN"  # What a command may do to the store is for others to say.
NAME = re.compile(r"[^/\x00-\x1f\x7f]{1,100}")


class CommandWorker:
    """Runs the commands of these projects, `lists_at_once` at the same time: as the user that it runs as itself.

    * `name`: a part of the names of files, in TDF2's way: without a slash.
    * `shell`: a program that takes `-c LINE`. `cwd`: where. `env`: beside what this process has, but for its token.
    * `memory_bytes`: of a command with all that it starts; None: no limit.
    * `timeout_factor`, `least_timeout_s`: a command may take so many times what is expected, and at least so long.
    * `output_bytes`: of each output: half of it is of the beginning, half of the end.
    * `lease_factor`, `least_lease_s`: a list is another worker's after so many times what is expected of its commands
      together, and at least so long; twice as long with each further claim.
    * `renew`: the lease is renewed instead, for as long as it takes.
    * `grace_s`: how long a command may go on when the worker stops. Then it is killed, and others get it.
    * `wait_ms`: how long a request waits for a list, which it brings at once.

    Raises InvalidInput, which names what makes no sense.
    """

    def __init__(
        self,
        store: Store,
        projects: Sequence[str],
        *,
        name: str = "",
        lists_at_once: int = 1,
        shell: str = "/bin/sh",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        memory_bytes: int | None = None,
        timeout_factor: float = 2,
        least_timeout_s: float = 30,
        output_bytes: int = OUTPUT_BYTES,
        lease_factor: float = 2,
        least_lease_s: float = 60,
        renew: bool = False,
        grace_s: float = 8,  # Docker kills after ten.
        wait_ms: int = 20_000,
    ) -> None:
        self.name = name or f"{socket.gethostname()}_{os.getpid()}"
        self.projects = tuple(dict.fromkeys(projects))
        self._setup = Setup(
            worker=self.name,
            shell=shell,
            cwd=cwd or os.getcwd(),
            env={**{name: value for name, value in os.environ.items() if name != WITHHELD}, **(env or {})},
            memory_bytes=memory_bytes,
            output_bytes=output_bytes,
            most_bytes=LIST_BYTES,
        )
        self._times = Times(
            timeout_factor=timeout_factor,
            least_timeout_s=least_timeout_s,
            lease_factor=lease_factor,
            least_lease_s=least_lease_s,
        )
        self._store, self._lists_at_once, self._wait_ms = store, lists_at_once, wait_ms
        self._refuse_nonsense()
        self._groups = [group_of(project, CommandStatus.OPEN) for project in self.projects]
        self._keeper = Keeper(store, round(least_lease_s * 1_000)) if renew else None
        self._live = Live(store, self._keeper.outage if self._keeper else Outage())
        self._stopping = Stopping(grace_s)
        self._last_words: SimpleQueue[BaseException | None] = SimpleQueue()

    def run(self) -> None:
        """Work until `stop` is called, or SIGTERM or SIGINT come. Raises NotAllowed when the token does not do.

        It can be called once. In the main thread it listens for the signals; a second one ends the process at once.
        """
        with stopping_by_signals(self.stop):
            self._begin()
            try:
                problem = self._last_word()
            finally:
                self._end()
        if problem:
            raise problem

    def stop(self) -> None:
        """Have `run` come to its end. It may be called by any thread, and by a signal handler."""
        self._last_words.put(None)

    def _refuse_nonsense(self) -> None:
        if not sys.platform.startswith("linux"):
            raise InvalidInput({"platform": ["workers of commands need Linux"]})
        setup = self._setup
        checks = {
            "projects": not self.projects and "at least one",
            **{f"projects[{place}]": why_no_project(name) for place, name in enumerate(self.projects)},
            "name": not NAME.fullmatch(setup.worker) and "1 to 100 characters, none of them / or a control character",
            "shell": not os.access(setup.shell, os.X_OK) and f"{setup.shell} is no program",
            "cwd": not Path(setup.cwd).is_dir() and f"{setup.cwd} is no folder",
            "lists_at_once": self._lists_at_once < 1 and "1 or more",
            "output_bytes": setup.output_bytes not in OUTPUT_RANGE and f"from {OUTPUT_RANGE[0]} to {OUTPUT_RANGE[-1]}",
        }
        if wrong := {field: [str(why)] for field, why in checks.items() if why}:
            raise InvalidInput(wrong)

    def _begin(self) -> None:
        self._slots = [self._new_slot() for _ in range(self._lists_at_once)]
        self._threads = [
            threading.Thread(target=self._work, args=[slot], name=f"list {number}", daemon=True)
            for number, slot in enumerate(self._slots, 1)
        ]
        self._heartbeat = Heartbeat(self._store, self.name, self._groups, self._info)
        if self._keeper:
            self._keeper.start()
        self._live.start()
        self._heartbeat.start()
        for thread in self._threads:
            thread.start()
        logger.info("%s runs the shell lines of %s", self.name, ", ".join(self.projects))

    def _new_slot(self) -> Slot:
        return Slot(
            self._store,
            self._groups,
            self._setup,
            self._times,
            keeper=self._keeper,
            live=self._live,
            stopping=self._stopping,
            wait_ms=self._wait_ms,
        )

    def _work(self, slot: Slot) -> None:
        try:
            slot.run()
        except Exception as problem:  # What can only get worse ends the worker.
            self._last_words.put(problem)

    def _last_word(self) -> BaseException | None:
        """Why it ends; None: it was told to."""
        while True:
            with suppress(Empty):
                return self._last_words.get(timeout=LOOK_S)

    def _end(self) -> None:
        self._stopping.begin()
        if busy := sum(slot.work is not None for slot in self._slots):
            # Else whoever pressed Ctrl-C wonders why it goes on.
            logger.info("stopping: the commands that run (%d) have %g s to end", busy, self._stopping.grace_s)
        idle_until = time.monotonic() + CLAIM_S
        for slot, thread in zip(self._slots, self._threads, strict=True):
            while thread.is_alive() and (slot.work or time.monotonic() < idle_until) and self._stopping.left_s:
                thread.join(0.05)
            if thread.is_alive():
                slot.kill()
        self._live.stop()
        if self._keeper:
            self._keeper.stop()
        self._heartbeat.stop()

    def _info(self) -> dict[str, Any]:
        """For the page of the workers."""
        works = [slot.work for slot in self._slots if slot.work]
        lists = {work.commands.name: len(work.runs) for work in works}
        return {**whereabouts(os.getpid()), "projects": self.projects, "lists": lists}
