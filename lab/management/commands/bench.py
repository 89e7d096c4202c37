"""How fast the store is, beside the bare database and its peers, all in one run."""

from __future__ import annotations

import resource
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from lab.benchmarks import machine
from lab.benchmarks.contenders import FIXED
from lab.benchmarks.pace import FULL, QUICK, Pace
from lab.benchmarks.report import report
from lab.benchmarks.run import run
from lab.benchmarks.scenes import Scene, chosen, names, scenes
from lab.testing import CannotTry
from lab.testing.places import Places
from taskstore_project.base_command import CannotRun, ProjectCommand, number_between

INCOMPLETE = 1
INTERRUPTED = 130
BUSY = 0.5  # Processes that want to run: from here on the figures are too low.


class Command(ProjectCommand):
    help = (
        "Compare the store with the bare database and similar systems. Starts what it needs and cleans up afterwards."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("parts", nargs="*", metavar="PART", help=f"only: {', '.join(names(scenes(FULL)))}")
        parser.add_argument("--quick", action="store_true", help="the most important parts, in about two minutes")
        parser.add_argument("--seconds", type=at_least_one, metavar="S", help="duration of each measurement")
        parser.add_argument("--rounds", type=at_least_one, metavar="N", help="number of alternating rounds")
        parser.add_argument(
            "--folder",
            type=Path,
            default=Path(tempfile.gettempdir()),
            metavar="DIR",
            help="directory on the disk to measure; the database's user needs access (default: %(default)s)",
        )
        parser.add_argument(
            "--against",
            nargs="?",
            const=FIXED,
            default="",
            metavar="REVISION",
            help="also measure the store at this git revision in the benchmarks of `goals` (without one: %(const)s)",
        )
        parser.add_argument("--save", type=Path, metavar="FILE", help="also write the report to a file")

    def handle(
        self, *, parts: Sequence[str], quick: bool, folder: Path, against: str, save: Path | None, **options: Any
    ) -> None:
        # SIGTERM also ends everything that this command has started.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        if not folder.is_dir():
            raise CannotRun(f"the directory {folder} does not exist: name another one with --folder")
        commit = machine.commit_of(against) if against else ""
        if against and not commit:
            raise CannotRun(f"{against} is not a revision in the git history of this project")
        pace = pace_of(QUICK if quick else FULL, **options)
        selected = selection(scenes(pace, commit), parts, quick=quick)
        allow_many_connections()
        try:
            is_complete = self.measure(selected, pace, folder, save)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        if not is_complete:
            sys.exit(INCOMPLETE)

    def measure(self, selected: Sequence[Scene], pace: Pace, folder: Path, save: Path | None) -> bool:
        """Run the scenes and tell the results. Returns whether all of it could be measured."""
        load = machine.load()
        if load > BUSY:
            say(f"The machine is busy (load {load:.1f}): the figures will be too low.")
        try:
            with Places(folder) as places:
                results = run(selected, pace, places, say)
        except CannotTry as problem:
            raise CannotRun(str(problem)) from None
        conditions = machine.conditions(folder)
        text = report(selected, results, {**conditions, "Load before": f"{load:.2f}", "Pace": str(pace)})
        say(f"\n{text.rstrip()}")
        if save:
            save.parent.mkdir(parents=True, exist_ok=True)
            save.write_text(f"Made by `{shlex.join(['python3', 'manage.py', *sys.argv[1:]])}`\n\n{text}")
        return results.is_complete


at_least_one = number_between(1, 1_000_000)


def pace_of(pace: Pace, *, seconds: int | None, rounds: int | None, **_: Any) -> Pace:
    return replace(pace, seconds=seconds or pace.seconds, rounds=rounds or pace.rounds)


def selection(everything: Sequence[Scene], parts: Sequence[str], *, quick: bool) -> list[Scene]:
    """Raises CannotRun when a word names nothing, or nothing is left."""
    if unknown := [part for part in parts if part not in names(everything)]:
        raise CannotRun(
            f"{unknown[0]} is not a known benchmark or contender; choose from {', '.join(names(everything))}"
        )
    # What is quick is a choice of scenes too, but one that a name overrules.
    quick_ones = [scene for scene in everything if scene.is_quick]
    named = any(scene.is_named_by(parts) for scene in everything)
    found = chosen(quick_ones if quick and not named else everything, parts)
    if not found:
        raise CannotRun(f"{' '.join(parts)}: this contender does not take part in this benchmark")
    return found


def allow_many_connections() -> None:
    """For us and all that we start: thousands of claims wait, each on a connection of its own."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def say(text: str) -> None:
    print(text, flush=True)
