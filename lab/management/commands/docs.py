"""Regenerate the pictures of the documentation."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from taskstore_project import bootstrap
from taskstore_project.base_command import CannotRun, ProjectCommand


class Command(ProjectCommand):
    help = "Regenerate the pictures of docs/. A server shows the documentation under /docs/."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("verb", choices=["pictures"], help="with the sample tasks of `demo seed`")

    def handle(self, **_: Any) -> None:
        if not settings.IS_CHECKOUT:
            raise CannotRun("pictures are made in a checkout; this installation shows the documentation under /docs/")
        bootstrap.add_requirements("test")
        from lab.documentation.pictures import take

        for picture in take(settings.BASE_DIR, settings.BASE_DIR / "docs"):
            print(f"written to {picture.relative_to(settings.BASE_DIR)}", flush=True)
