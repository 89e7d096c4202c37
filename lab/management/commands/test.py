"""Every check of the project in one command: format, lint, types, the tests on both databases, and fault tests."""

import signal
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, NoReturn

from django.core.management.base import BaseCommand

from lab.testing import PROJECT, CannotTry
from lab.testing.postgresql import POSTGRESQL, SQLITE
from lab.testing.runs import Length, Plan, run_all
from taskstore_project import bootstrap

CANNOT_TEST = 2


class Command(BaseCommand):
    help = "Check format, lint and types, and run the tests on SQLite and on PostgreSQL."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        # Without Django's own options: -v and the like are pytest's here.
        parser = ArgumentParser(
            prog=f"{Path(prog_name).name} {subcommand}",
            description=f"{self.help} All other arguments go to pytest.",
            epilog="TASKSTORE_TEST_POSTGRES_URL and TASKSTORE_CHROMIUM name a server and a browser to use. "
            "By default the tests use those of the system, or install them.",
            allow_abbrev=False,
        )
        parser.add_argument("--database", choices=[SQLITE, POSTGRESQL, "both"], default="both", help="default: both")
        length = parser.add_mutually_exclusive_group()
        for option, const, told in (
            ("--quick", Length.QUICK, "without browser and stress tests"),
            ("--landing", Length.LANDING, "with fault tests, and in part with another Python; as .ci/run"),
            ("--all", Length.ALL, "both databases with each Python, and the long tests"),
        ):
            length.add_argument(option, dest="length", action="store_const", const=const, help=told)
        parser.set_defaults(length=Length.USUAL)
        parser.add_argument("--no-lint", action="store_true", help="the tests only")
        parser.add_argument("--install", action="store_true", help="only install what the tests need")
        return parser

    def run_from_argv(self, argv: list[str]) -> NoReturn:
        options, pytest_arguments = self.create_parser(argv[0], argv[1]).parse_known_args(argv[2:])
        if not (PROJECT / "tests").is_dir():
            sys.exit("taskstore: the tests are in the project's repository, not in the installed package")
        bootstrap.add_requirements("test")
        if options.install:
            sys.exit()
        plan = Plan(
            databases=[SQLITE, POSTGRESQL] if options.database == "both" else [options.database],
            length=options.length,
            gates=not options.no_lint,
            pytest_arguments=pytest_arguments,
        )
        sys.exit(exit_code(plan))


def exit_code(plan: Plan) -> int:
    # Whoever runs the tests in the background has Ctrl-C switched off, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Make SIGTERM end the servers that the tests started too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return 0 if run_all(plan) else 1
    except CannotTry as problem:
        print(f"taskstore: {problem}", file=sys.stderr)
        return CANNOT_TEST
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
