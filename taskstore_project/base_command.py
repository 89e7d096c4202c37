"""The base of this project's commands: mistakes in one line, tables, and the user who runs them."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandParser
from django.db import Error as DatabaseProblem

from tasks_app.core.actors import Actor
from taskstore.types.scalars import whole

USERS_MISTAKE = 2


class CannotRun(Exception):
    """The user has to correct something; the text is one line that says what."""


class ProjectCommand(BaseCommand):
    """A command that ends with one line on standard error and exit code 2 where the user has to act."""

    # The server runs the checks itself; the other commands need not load every page for them.
    requires_system_checks = []
    # Django's own options work, but in the help they would hide those of the command.
    suppressed_base_arguments = {
        "--version",
        "--verbosity",
        "--settings",
        "--pythonpath",
        "--traceback",
        "--no-color",
        "--force-color",
    }

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        # `--data` is taken from the command line before the settings are read, see __main__.
        note = "--data DIR sets the store's data directory (default: TASKSTORE_DATA)."
        return super().create_parser(prog_name, subcommand, epilog=note, **kwargs)

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except (CannotRun, DatabaseProblem, ImproperlyConfigured) as problem:
            if options["traceback"]:
                raise
            fail(problem)


def fail(problem: Exception) -> NoReturn:
    print(f"taskstore: {one_line(problem)}", file=sys.stderr)
    sys.exit(USERS_MISTAKE)


def typed(command: str) -> str:
    """Return a command as the user types it, with the options that select this store."""
    return f"{settings.TYPED_AS} {command}{settings.TYPED_BEHIND}"


def one_line(problem: Exception) -> str:
    text = " ".join(str(problem).split())
    return f"database error: {text}" if isinstance(problem, DatabaseProblem) else text


def number_between(least: int, most: int, what: str = "a number") -> Callable[[str], int]:
    """Return a parser for an option's value within these limits."""

    def read(text: str) -> int:
        if (number := whole(text, least, most)) is not None:
            return number
        raise argparse.ArgumentTypeError(f"must be {what} between {least} and {most}, not {text}")

    return read


def lines_of(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows as lines, with each column as wide as its longest text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def grouped(number: int) -> str:
    """Format 1234567 as 1 234 567."""
    return f"{number:,}".replace(",", " ")


def actor() -> Actor:
    """Return the operating system's user who runs the command, for the audit log."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # A container's user may have a number only.
        name = f"user {os.getuid()}"
    return Actor(f"{name} (command line)")
