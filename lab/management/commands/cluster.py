"""Try the store on several nodes on one machine."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from lab.benchmarks import machine
from lab.chaos.report import in_full
from lab.cluster.demo import FULL, QUICK, Pace, play, report
from lab.cluster.nodes import Cluster
from lab.cluster.plan import new_plan
from lab.testing import CannotTry
from taskstore_project.base_command import CannotRun, ProjectCommand

VIOLATED = 1
INCOMPLETE = 3
INTERRUPTED = 130
MOST_SHOWN = 5  # Violations.


@dataclass
class Progress:
    """Prints a line for each step, with the time since the start."""

    began_s: float = field(default_factory=time.monotonic)

    def __call__(self, text: str) -> None:
        print(f"{time.monotonic() - self.began_s:6.1f} s  {text}", flush=True)


class Command(ProjectCommand):
    help = "Run the store on several nodes with a database that fails over, all on this machine."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="demo")
        demo = actions.add_parser("demo", help="run load, kill nodes, and check that no acknowledged change is lost")
        demo.add_argument(
            "--quick", action="store_true", help="a smaller run: one standby, and only the primary is killed"
        )
        demo.add_argument("--keep", action="store_true", help="keep the cluster running afterwards, until Ctrl-C")
        demo.add_argument("--seed", help="seed of an earlier run, to repeat the clients' actions (default: a new one)")
        demo.add_argument(
            "--folder",
            type=Path,
            default=Path(tempfile.gettempdir()),
            metavar="DIR",
            help="directory for the databases; PostgreSQL's user needs access (default: %(default)s)",
        )

    def handle(self, *, folder: Path, seed: str | None, quick: bool, keep: bool, **_: Any) -> None:
        # Make SIGTERM end all started processes too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        # Background processes of a shell script ignore SIGINT by default.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise CannotRun(f"the directory {folder} does not exist or is not writable: name another one with --folder")
        pace, plan = (
            (QUICK, new_plan(nodes=1, standbys=1, etcd=1)) if quick else (FULL, new_plan(nodes=3, standbys=2, etcd=3))
        )
        say, seed = Progress(), seed or secrets.token_hex(4)
        say(f"seed {seed}")
        try:
            with Cluster(plan, folder, say) as cluster, explained(cluster):
                code = self.demo(cluster, pace, seed, say, keep=keep)
        except CannotTry as problem:
            print(f"taskstore: {problem}", file=sys.stderr)
            code = INCOMPLETE
        except KeyboardInterrupt:
            code = INTERRUPTED
        say("stopped: no processes are left")
        sys.exit(code)

    def demo(self, cluster: Cluster, pace: Pace, seed: str, say: Progress, *, keep: bool) -> int:
        """Returns the exit code."""
        conditions = conditions_of(cluster)
        cluster.start()
        observed = play(cluster, pace, seed, say)
        print(f"\n{report(observed, conditions)}", flush=True)
        for violation in observed.outcome.violations[:MOST_SHOWN]:
            print(f"VIOLATION {in_full(violation)}", flush=True)
        if observed.outcome.violations:
            print(f"The logs of all programs are kept in {cluster.keep_logs()}", flush=True)
        if keep:
            stay(cluster)
        return VIOLATED if observed.outcome.violations else 0


@contextmanager
def explained(cluster: Cluster) -> Iterator[None]:
    """Print the programs' last log lines if something can't be tried, because their folders are removed."""
    try:
        yield
    except CannotTry:
        for name, words in cluster.last_words().items():
            print(f"{name}: {words}", file=sys.stderr)
        raise


def conditions_of(cluster: Cluster) -> Mapping[str, str]:
    """Return the conditions of the figures."""
    found = machine.conditions(cluster.folder, cluster.programs.versions())
    return {**found, "Load before": f"{machine.load():.1f} runnable processes on average in the last minute"}


def stay(cluster: Cluster) -> None:
    """Keep the cluster running until Ctrl-C."""
    print("The cluster keeps running until Ctrl-C:\n")
    for name, address in cluster.addresses().items():
        print(f"  {name:<{max(map(len, cluster.addresses()))}}  {address}")
    sys.stdout.flush()
    with suppress(KeyboardInterrupt):
        signal.pause()
