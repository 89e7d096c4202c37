"""Regenerate the pictures and the generated pages of the documentation."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from taskstore_project import bootstrap
from taskstore_project.base_command import CannotRun, ProjectCommand


class Command(ProjectCommand):
    help = "Regenerate the pictures and the generated pages of docs/. A server shows the documentation under /docs/."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="pictures | reference")
        verbs.add_parser("pictures", help="regenerate the pictures of docs/, with the sample tasks of `demo seed`")
        verbs.add_parser("reference", help="regenerate the pages of docs/ that come from the code: gRPC, errors")

    def handle(self, *, verb: str, **_: Any) -> None:
        if not settings.IS_CHECKOUT:
            raise CannotRun(
                "pictures and pages are made in a checkout; this installation shows the documentation under /docs/"
            )
        {"pictures": self.pictures, "reference": self.reference}[verb]()

    def pictures(self) -> None:
        bootstrap.add_requirements("test")
        from lab.documentation.pictures import take

        for picture in take(settings.BASE_DIR, settings.BASE_DIR / "docs"):
            print(f"written to {picture.relative_to(settings.BASE_DIR)}", flush=True)

    def reference(self) -> None:
        bootstrap.add_requirements("test")  # Includes the protobuf compiler.
        from lab.documentation.reference import pages

        for name, text in pages().items():
            place = settings.BASE_DIR / "docs" / name
            place.write_text(text)
            print(f"written to {place.relative_to(settings.BASE_DIR)}")
