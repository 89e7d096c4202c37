"""Verify the store, also while it is served."""

from __future__ import annotations

import sys

from django.core.management.base import CommandParser

from taskstore_project.backup import verifying
from taskstore_project.base_command import ProjectCommand
from taskstore_project.startup_migration import need_store

WRONG = 1


class Command(ProjectCommand):
    help = "Check the store for damage and print each problem. Exit code 1 if there are any. Servers can keep running."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--mend", action="store_true", help="fix wrong counts and unique keys first")

    def handle(self, *, mend: bool, **options: object) -> None:
        need_store()
        if mend and (groups := verifying.mend_counts()):
            self.stdout.write(f"groups with fixed counts: {groups}")
        if mend and (keys := verifying.mend_keys()):
            self.stdout.write(f"fixed unique keys: {keys}")
        problems = list(verifying.problems())
        for problem in problems:
            self.stdout.write(problem)
        if problems:
            sys.exit(WRONG)
        self.stdout.write("no problems found")
