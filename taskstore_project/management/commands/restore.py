"""Restore a backup into an empty store."""

from __future__ import annotations

from pathlib import Path

from django.core.management.base import CommandParser

from tasks_app.database import newest_id
from taskstore_project import backup
from taskstore_project.base_command import ProjectCommand, grouped


class Command(ProjectCommand):
    help = "Restore a backup into an empty store, completely or not at all. Stop the servers first."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE", help="file that `backup` wrote")

    def handle(self, *, file: Path, **options: object) -> None:
        manifest = backup.restore(file.absolute(), self.stderr.write)
        self.stdout.write(f"{grouped(manifest.tasks)} tasks were restored; the next id is larger than {newest_id()}")
