"""Break servers, databases, workers and networks, and check that the store keeps its promises."""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from lab.chaos.pace import SHORT, TINY, Pace
from lab.chaos.report import Result, in_full, report, run
from lab.chaos.scenes import SCENES, Scene
from lab.chaos.stage import Database, Places
from taskstore_project.base_command import CannotRun, ProjectCommand

VIOLATED = 1
INCOMPLETE = 3
INTERRUPTED = 130
HOUR_S = 3_600
MOST_SHOWN = 5  # Violations of a scene.


class Command(ProjectCommand):
    help = "Break servers, databases, workers and networks under load, and check the store's guarantees."

    def add_arguments(self, parser: CommandParser) -> None:
        names = ", ".join(scene.name for scene in SCENES)
        parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"only: {names}")
        length = parser.add_mutually_exclusive_group()
        length.add_argument(
            "--short", action="store_true", help="the default: takes 14 minutes on SQLite, 22 on PostgreSQL"
        )
        length.add_argument("--tiny", action="store_true", help="a shorter run: about a minute per database")
        length.add_argument(
            "--long", type=hours, metavar="HOURS", help="repeat for this many hours, with a new seed each time"
        )
        parser.add_argument("--database", choices=[*Database, "both"], default="both", help="default: both")
        parser.add_argument("--seed", help="seed of an earlier run, to repeat its actions (default: a new one)")
        parser.add_argument(
            "--folder",
            type=Path,
            default=Path(tempfile.gettempdir()),
            metavar="DIR",
            help="directory for the databases; PostgreSQL's user needs access (default: %(default)s)",
        )
        parser.add_argument("--save", type=Path, metavar="FILE", help="also write the report to a file")

    def handle(self, *, scenes: Sequence[str], database: str, folder: Path, save: Path | None, **options: Any) -> None:
        # Make SIGTERM end all started processes too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        if not folder.is_dir():
            raise CannotRun(f"the directory {folder} does not exist: name another one with --folder")
        selected = selection(scenes, tiny=options["tiny"])
        databases = list(Database) if database == "both" else [Database(database)]
        if not any(found in scene.databases for scene in selected for found in databases):
            raise CannotRun(f"{' '.join(scenes)} can't be tried on {database}: choose another database")
        results: list[Result] = []
        try:
            with Places(folder) as places:
                for result in rounds(selected, databases, places, **options):
                    results.append(result)
                    tell(result)
        except KeyboardInterrupt:
            say("interrupted: these are the results so far")
        text = report(results)
        say(f"\n{text}")
        if save:
            save.write_text(f"{text}\n")
        sys.exit(exit_code(results))


def hours(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if 0 < found <= 24 * 365:
        return found
    raise argparse.ArgumentTypeError(f"must be a number of hours above 0, not {text}")


def selection(names: Sequence[str], *, tiny: bool) -> list[Scene]:
    """Raises CannotRun when a name names nothing."""
    known = {scene.name: scene for scene in SCENES}
    if unknown := [name for name in names if name not in known]:
        raise CannotRun(f"{unknown[0]} is not a known scene; use one of {', '.join(known)}")
    return [known[name] for name in names] or [scene for scene in SCENES if scene.is_tiny or not tiny]


def rounds(
    scenes: Sequence[Scene],
    databases: Sequence[Database],
    places: Places,
    *,
    seed: str | None,
    tiny: bool,
    long: float | None,
    **_: Any,
) -> Iterator[Result]:
    """Run all scenes once, or repeatedly until the hours are over."""
    pace: Pace = TINY if tiny else SHORT
    end_s = time.monotonic() + (long or 0) * HOUR_S
    while True:
        chosen = seed or secrets.token_hex(4)
        say(f"seed {chosen}")
        yield from run(scenes, databases, places, chosen, pace, say)
        if time.monotonic() >= end_s:
            return
        seed = None


def tell(result: Result) -> None:
    if result.outcome is None:
        say(f"  not run: {result.problem}")
        return
    outcome = result.outcome
    say(
        f"  {outcome.operations} operations, {outcome.faults} faults, {outcome.in_doubt} in doubt, "
        f"{len(outcome.violations)} violations"
    )
    for figure in outcome.figures:
        say(f"  {figure}")
    for violation in outcome.violations[:MOST_SHOWN]:
        say(f"  VIOLATION {in_full(violation)}")


def exit_code(results: Sequence[Result]) -> int:
    """Return the exit code. Missed time goals don't count, because they depend on the machine."""
    if any(result.outcome and result.outcome.violations for result in results):
        return VIOLATED
    return INCOMPLETE if any(result.outcome is None for result in results) or not results else 0


def say(text: str) -> None:
    print(text, flush=True)
