"""`CommandWorker`, a worker that runs shell commands."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..errors import refuse
from ..types import sentences
from ..types.command_record import LARGEST_OUTPUT, CommandStatus, group_of, why_no_project
from ..types.tasks import Order
from ..worker.engine import MOST_LOOKED_AT, Engine
from ..worker.outputs import OutputTo
from ..worker.store import Store
from .executor import Lists, Setup
from .work import Times, Work

logger = logging.getLogger(__name__)

OUTPUT_BYTES = 10 * 2**20
OUTPUT_RANGE = range(2**10, LARGEST_OUTPUT + 1)
WITHHELD = "TASKSTORE_TOKEN"  # Commands must not inherit the worker's access to the store.
NAME = re.compile(r"[^/\x00-\x1f\x7f]{1,100}")


class CommandWorker(Engine[Work, None]):
    """A worker that runs the shell commands of these projects as its own user. Needs Linux.

    * `name`: 1 to 100 characters without a slash, because TDF2's file names contain it; by default host and process.
    * `lists_at_once`: how many lists run at the same time; the commands of a list run one after the other.
    * `shell`: a program that takes `-c LINE`. `cwd`: the working directory of commands, by default this one's.
    * `env`: environment variables in addition to this process's own, except for its TASKSTORE_TOKEN.
    * `memory_bytes`: the limit for a command with all its child processes; None means no limit.
    * `timeout_factor`, `least_timeout_s`: a command may take its expected duration times the factor, and at least
      that many seconds. Then it is killed and counts as failed.
    * `output_bytes`: how much of each output is kept; of a longer one half from its beginning, half from its end.
    * `output`: "copy" also copies each line to standard error, after the id of its command, and "raw" without that.
    * `allow_stderr`: a command that writes to standard error has not failed for that reason.
    * `lease_factor`, `least_lease_s`: without `renew`, a list is leased for the expected duration of all its commands
      times the factor, and at least that many seconds; the lease doubles with each further claim.
    * `renew`: lease each list for `least_lease_s` and renew the lease while the worker lives. False: TDF2's rule.
    * `grace_s`: how long a running command may continue when the worker stops. Then it is killed and made available
      again.
    * `wait_ms`: how long the server holds a claim when there is no open list.

    Raises InvalidInput, which names every invalid argument.
    """

    burst_wait_s = 60.0

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
        allow_stderr: bool = False,
        lease_factor: float = 2,
        least_lease_s: float = 60,
        renew: bool = True,
        grace_s: float = 8,  # Docker kills after ten.
        wait_ms: int = 20_000,
        output: OutputTo = "store",
    ) -> None:
        self.projects = tuple(dict.fromkeys(projects))
        setup = Setup(
            worker=name or f"{socket.gethostname()}_{os.getpid()}",
            shell=shell,
            cwd=cwd or os.getcwd(),
            env={**{name: value for name, value in os.environ.items() if name != WITHHELD}, **(env or {})},
            memory_bytes=memory_bytes,
            output_bytes=output_bytes,
            output=output,
            allow_stderr=allow_stderr,
        )
        checks = {
            "platform": not sys.platform.startswith("linux") and "must be Linux",
            "projects": not self.projects and "must name at least one project",
            **{f"projects[{place}]": why_no_project(name) for place, name in enumerate(self.projects)},
            "name": not NAME.fullmatch(setup.worker)
            and "must have 1 to 100 characters, without / and control characters",
            "shell": not os.access(shell, os.X_OK) and f"must be an executable program, not {shell}",
            "cwd": not Path(setup.cwd).is_dir() and f"must be an existing directory, not {setup.cwd}",
            "lists_at_once": lists_at_once < 1 and f"must be at least 1, not {lists_at_once}",
            "output_bytes": output_bytes not in OUTPUT_RANGE
            and sentences.between(OUTPUT_RANGE[0], OUTPUT_RANGE[-1], output_bytes),
        }
        refuse((field, str(why)) for field, why in checks.items() if why)
        times = Times(
            timeout_factor=timeout_factor,
            least_timeout_s=least_timeout_s,
            lease_factor=lease_factor,
            least_lease_s=least_lease_s,
            renew=renew,
        )
        self._lists = Lists(self.projects, setup, times, lists_at_once=lists_at_once)
        super().__init__(
            store,
            self._lists,
            [group_of(project, CommandStatus.OPEN) for project in self.projects],
            name=setup.worker,
            lease_ms=round(least_lease_s * 1_000),
            order=Order.OLDEST,
            wait_ms=wait_ms,
            grace_s=grace_s,
        )

    def _coming(self) -> Iterator[tuple[float, str]]:
        yield from super()._coming()
        for project in self.projects:
            for status in (CommandStatus.CLOSED, CommandStatus.NEW):  # A closed list may have commands that run again.
                found = self.store.search(f'group:"{group_of(project, status)}" -state:claimed', limit=MOST_LOOKED_AT)
                if found.tasks:
                    due_ms = min([task.available_at_ms for task in found.tasks])
                    what = "has new commands in no list yet: a server that runs with --commands makes lists"
                    yield due_ms, f"project {project} {what}"
                    break
