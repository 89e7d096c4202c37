"""Measure the store under a steady load for hours."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from lab.benchmarks.contenders import UVICORN
from lab.benchmarks.places import place_for
from lab.benchmarks.soak import Minute, plot, report, soak
from lab.testing import CannotTry
from lab.testing.places import Places
from taskstore_project.base_command import CannotRun, ProjectCommand

from .bench import allow_many_connections, at_least_one, say


class Command(ProjectCommand):
    help = "Claim and delete tasks at a steady rate for hours, also while somebody holds a transaction open."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--minutes", type=at_least_one, default=480, help="before that (default: %(default)s)")
        parser.add_argument("--held", type=at_least_one, default=30, help="minutes of that (default: %(default)s)")
        parser.add_argument("--after", type=at_least_one, default=15, help="minutes after it (default: %(default)s)")
        parser.add_argument("--rate", type=at_least_one, default=1_500, help="cycles a second (default: %(default)s)")
        parser.add_argument("--save", type=Path, metavar="FILE", help="where to draw the plot (SVG)")
        parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for the database")

    def handle(
        self, *, minutes: int, held: int, after: int, rate: int, save: Path | None, folder: Path, **_: Any
    ) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        allow_many_connections()
        try:
            with Places(folder) as places, place_for(UVICORN, places) as place:
                found = soak(place, rate, minutes, held, after, told)
        except CannotTry as problem:
            raise CannotRun(str(problem)) from None
        say(report(found, rate))
        if save:
            save.write_text(plot(found))


def told(minute: Minute) -> None:
    held = ", held" if minute.is_held else ""
    say(
        f"minute {minute.minute}{held}: {minute.cycles:.0f}/s, p50 {minute.p50_ms:.1f}, p99 {minute.p99_ms:.1f} ms; "
        f"{minute.dead_rows} dead rows, table {minute.table_mb}, indexes {minute.index_mb}, "
        f"history {minute.history_mb} MB"
    )
