"""Back up the whole store to a file."""

from __future__ import annotations

from pathlib import Path

from django.core.management.base import CommandParser

from taskstore_project import backup
from taskstore_project.base_command import ProjectCommand, grouped
from taskstore_project.startup_migration import need_store


class Command(ProjectCommand):
    help = "Back up the whole store to a file. Servers can keep running."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "file",
            type=Path,
            metavar="FILE",
            help="file to write, readable only by its owner; replaces an existing file, and writes through a pipe",
        )

    def handle(self, *, file: Path, **options: object) -> None:
        need_store()
        manifest = backup.write(file.absolute(), self.stderr.write)
        # What is written through may be standard output itself.
        output = self.stdout if file.is_file() else self.stderr
        output.write(f"{grouped(manifest.tasks)} tasks, ids up to {manifest.ids}, are in {file}")
