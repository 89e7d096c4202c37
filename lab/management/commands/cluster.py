"""Try the store on several nodes on one machine."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from lab.benchmarks import machine
from lab.chaos.outcome import in_full
from lab.cluster.demo import play, report
from lab.cluster.nodes import Cluster
from lab.testing import CannotTry
from taskstore_project.base_command import CannotRun, ProjectCommand

VIOLATED, INCOMPLETE, INTERRUPTED = 1, 3, 130
MOST_SHOWN = 5  # Violations.


class Command(ProjectCommand):
    help = "Run the store on several nodes with a database that fails over, all on this machine."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=["demo"], help="kill nodes under load, and check that nothing is lost")
        parser.add_argument("--keep", action="store_true", help="keep the cluster running afterwards, until Ctrl-C")
        parser.add_argument("--seed", help="of an earlier run, to repeat the clients' actions (default: a new one)")
        parser.add_argument(
            "--folder",
            type=Path,
            default=Path(tempfile.gettempdir()),
            metavar="DIR",
            help="directory for the databases; PostgreSQL's user needs access (default: %(default)s)",
        )

    def handle(self, *, folder: Path, seed: str | None, keep: bool, **_: Any) -> None:
        # Make SIGTERM end all started processes too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        # Background processes of a shell script ignore SIGINT by default.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise CannotRun(f"the directory {folder} does not exist or is not writable: name another one with --folder")
        self.began_s = time.monotonic()
        seed = seed or secrets.token_hex(4)
        self.say(f"seed {seed}")
        try:
            with Cluster(folder, self.say) as cluster:
                code = self.demo(cluster, seed, keep=keep)
        except CannotTry as problem:
            print(f"taskstore: {problem}", file=sys.stderr)
            code = INCOMPLETE
        except KeyboardInterrupt:
            code = INTERRUPTED
        self.say("stopped: no processes are left")
        sys.exit(code)

    def demo(self, cluster: Cluster, seed: str, *, keep: bool) -> int:
        """Returns the exit code."""
        conditions = {**machine.conditions(cluster.folder), "Load before": f"{machine.load():.1f}"}
        try:
            cluster.start()
            observed = play(cluster, seed, self.say)
        except CannotTry:
            for name, words in cluster.last_words().items():  # The logs are removed.
                print(f"{name}: {words}", file=sys.stderr)
            raise
        violations = observed.outcome.violations
        print(f"\n{report(observed, conditions)}", flush=True)
        for violation in violations[:MOST_SHOWN]:
            print(f"VIOLATION {in_full(violation)}", flush=True)
        if violations:
            cluster.is_kept = True
            print(f"The databases and the logs of all programs are kept in {cluster.folder}", flush=True)
        if keep:
            print("The cluster keeps running until Ctrl-C:\n")
            for name, address in cluster.addresses().items():
                print(f"  {name:<25}  {address}", flush=True)
            with suppress(KeyboardInterrupt):
                signal.pause()
        return VIOLATED if violations else 0

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        print(f"{time.monotonic() - self.began_s:6.1f} s  {text}", flush=True)
