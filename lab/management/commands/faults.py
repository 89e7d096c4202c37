"""Break the product on purpose, and say which test notices each fault."""

import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from lab.faults import all_faults, try_all
from lab.testing import CannotTry
from lab.testing.environment import data_place
from lab.testing.postgresql import SQLITE, addresses
from taskstore_project import bootstrap

SHOWN_LINES = 15


class Command(BaseCommand):
    help = "Seed faults into copies of the project one by one, and say which test notices each."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("words", nargs="*", help="only faults whose part or sentence contains one of these words")
        parser.add_argument("--list", action="store_true", help="only list the faults")

    def handle(self, *, words: list[str], list: bool, **_: Any) -> None:
        bootstrap.add_requirements("test")
        try:
            faults = [
                fault
                for fault in all_faults()
                if not words or any(word in f"{fault.part}: {fault.breaks}" for word in words)
            ]
            if not faults:
                raise CannotTry(f"no fault contains {' or '.join(words)}: --list shows them all")
            if list:
                for fault in faults:
                    print(f"{fault.part}: {fault.breaks}")
                return
            databases = sorted({SQLITE, *(fault.database for fault in faults)})
            made = tempfile.TemporaryDirectory(prefix="taskstore-faults-", dir=data_place())
            missed = 0
            with made as name, addresses(databases) as urls:
                for each in try_all(faults, urls, Path(name)):
                    print(f"{each.fault.part}: {each.fault.breaks}\n    {each.noticed_by or 'NOTHING NOTICED IT'}")
                    if not each.noticed_by:
                        missed += 1
                        print("\n".join(f"    | {line}" for line in each.output.splitlines()[-SHOWN_LINES:]))
                    sys.stdout.flush()
            print(f"{len(faults) - missed} of {len(faults)} faults were noticed")
        except CannotTry as problem:
            sys.exit(f"taskstore: {problem}")
        if missed:
            sys.exit(1)
