"""A worker of shell commands, as programs make it."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import refuse
from ..types import sentences
from ..types.command_record import CommandStatus, group_of, why_no_project
from ..types.tasks import Order
from ..worker.engine import Engine
from ..worker.store import Store
from .executor import Lists
from .messages import Setup
from .work import Times, Work

OUTPUT_BYTES = 256 * 2**10
OUTPUT_RANGE = range(2**10, 2 * 2**20 + 1)
LIST_BYTES = 4 * 2**20  # Of outputs: then a list is closed, and others get the rest of it.
WITHHELD = "TASKSTORE_TOKEN"  # What a command may do to the store is for others to say.
NAME = re.compile(r"[^/\x00-\x1f\x7f]{1,100}")


class CommandWorker(Engine[Work]):
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
        self.projects = tuple(dict.fromkeys(projects))
        setup = Setup(
            worker=name or f"{socket.gethostname()}_{os.getpid()}",
            shell=shell,
            cwd=cwd or os.getcwd(),
            env={**{name: value for name, value in os.environ.items() if name != WITHHELD}, **(env or {})},
            memory_bytes=memory_bytes,
            output_bytes=output_bytes,
            most_bytes=LIST_BYTES,
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
        )
        super().__init__(
            store,
            Lists(self.projects, setup, times, lists_at_once=lists_at_once, renew=renew),
            [group_of(project, CommandStatus.OPEN) for project in self.projects],
            name=setup.worker,
            lease_ms=round(least_lease_s * 1_000),
            order=Order.OLDEST,
            wait_ms=wait_ms,
            grace_s=grace_s,
        )
