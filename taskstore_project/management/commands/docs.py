"""The documentation: written to a folder as a site; the pages of it that come from the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from taskstore_project import bootstrap
from taskstore_project.commands import CannotRun, ProjectCommand
from taskstore_project.documentation.building import CannotBuild, build


class Command(ProjectCommand):
    help = "Write the documentation as a site; a server shows it under /docs/."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="build | pictures | reference")
        building = verbs.add_parser("build", help="write the site to a new folder, as any web server can show it")
        building.add_argument("folder", type=Path, metavar="DIR")

        verbs.add_parser("pictures", help="make the pictures of docs/ anew, of a server with the demo's seed")
        verbs.add_parser("reference", help="make the pages of docs/ anew that come from the code: REST, gRPC, errors")

    def handle(self, *, verb: str, **options: Any) -> None:
        if not settings.IS_CHECKOUT:
            raise CannotRun("the documentation is made from a checkout; this installation serves it under /docs/")
        {"build": self.build, "pictures": self.pictures, "reference": self.reference}[verb](**options)

    def pictures(self, **_: Any) -> None:
        bootstrap.add_requirements("test")
        from taskstore_project.documentation.pictures import take

        for picture in take(settings.BASE_DIR, settings.BASE_DIR / "docs"):
            print(f"written to {picture.relative_to(settings.BASE_DIR)}", flush=True)

    def reference(self, **_: Any) -> None:
        bootstrap.add_requirements("test")  # The compiler of gRPC's definitions.
        # It describes every page of the API, which takes a second that the other verbs need not wait.
        from taskstore_project.documentation.reference import pages

        for name, text in pages().items():
            place = settings.BASE_DIR / "docs" / name
            place.write_text(text)
            print(f"written to {place.relative_to(settings.BASE_DIR)}")

    def build(self, *, folder: Path, **_: Any) -> None:
        if folder.exists():
            raise CannotRun(f"{folder} is there already: name a new folder")
        try:
            build(settings.BASE_DIR, folder, strict=True)
        except CannotBuild as problem:
            raise CannotRun(str(problem)) from None
        print(f"written to {folder}: begin with {folder / 'index.html'}")
