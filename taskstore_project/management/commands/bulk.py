"""Changes to many tasks from the command line, also beside a running server."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

import msgspec
from django.core.management.base import CommandParser

from tasks_app import bulk
from tasks_app.bulk import Asked, Parameters, Selection, Verb
from tasks_app.errors import InvalidInput
from tasks_app.models import BulkOperation
from tasks_app.rest_api.bulk_answers import OperationAnswer
from taskstore_project import bulk_words
from taskstore_project.commands import CannotRun, ProjectCommand
from taskstore_project.migration import need_store
from taskstore_project.tables import lines_of
from taskstore_project.users_name import users_name

REFUSED = 1
INTERRUPTED = 130
TELL_EVERY_S = 1.0
LISTED = 50
LONGEST_NAME = 100
# What has changed meanwhile, or was not agreed to. All else was typed wrongly.
REFUSALS = {"expected", "typed", "operation"}


class Command(ProjectCommand):
    help = "Requeue, move, edit or purge many tasks: shown first, and undone if need be. Exit code 1: it was refused."

    def add_arguments(self, parser: CommandParser) -> None:
        names = "requeue | move | edit | purge | undo | cancel | list"
        verbs = parser.add_subparsers(dest="verb", required=True, metavar=names)
        requeue = verbs.add_parser("requeue", help="make them available, without owner and error")
        requeue.add_argument(
            "--at", type=time_ms, default=0, metavar="TIME", help="2026-01-31T12:00 (UTC) (default: now)"
        )
        requeue.add_argument("--spread-minutes", type=int, default=0, metavar="N", help="over how long, evenly")
        move = verbs.add_parser("move", help="put them into another group")
        move.add_argument("--to", required=True, metavar="GROUP")
        move.add_argument("--create", action="store_true", help="it may be a new group")
        edit = verbs.add_parser("edit", help="give them an error text or a priority")
        edit.add_argument("--error", metavar="TEXT", help="'' for none")
        edit.add_argument("--priority", type=int, metavar="N")
        purge = verbs.add_parser("purge", help="delete them")
        for change in (requeue, move, edit, purge):
            add_question(change)
        undo = verbs.add_parser("undo", help="take an operation back, but for what has changed since")
        undo.add_argument("--reason", default="", metavar="TEXT")
        cancel = verbs.add_parser("cancel", help="let an operation end after what it is at")
        for of_one in (undo, cancel):
            of_one.add_argument("operation", type=int, metavar="N", help="its number")
            add_outcome(of_one)
        verbs.add_parser("list", help=f"show the last {LISTED} operations")

    def handle(self, *, verb: str, **options: Any) -> None:
        need_store()
        try:
            match verb:
                case "list":
                    self.list()
                case "undo":
                    undone = find(options["operation"])
                    self.follow(bulk.undo(undone, by=options["by"], reason=options["reason"]), options["json"])
                case "cancel":
                    self.cancel(find(options["operation"]), options["by"], options["json"])
                case _:
                    self.change(Verb(verb), **options)
        except InvalidInput as mistake:
            if not REFUSALS & mistake.fields.keys():
                raise CannotRun(str(mistake)) from None
            refuse(str(mistake))

    def list(self) -> None:
        rows = [bulk_words.shown(operation) for operation in BulkOperation.objects.order_by("-pk")[:LISTED]]
        self.tell(lines_of([bulk_words.COLUMNS, *rows]))

    def change(
        self, verb: Verb, *, query: Sequence[str], yes: bool, by: str, reason: str, json: bool, **options: Any
    ) -> None:
        q = " ".join(query)
        if not q.strip():
            raise CannotRun(bulk.SAY_WHICH)
        parameters, seen = parameters_of(options), bulk.preview(Selection(q=q))
        if not seen.count:
            self.tell(["no task meets it: nothing is to be done"], json)
            return
        self.tell(bulk_words.question(verb, seen, parameters), json)
        typed = self.agreed(bulk.to_type(verb, seen), options["type"], is_agreed=yes)
        asked = Asked(
            verb=verb,
            selection=seen.selection,
            expected=seen.count,
            by=by,
            parameters=parameters,
            reason=reason,
            typed=typed,
        )
        self.follow(bulk.start(asked), json)

    def agreed(self, to_type: str, typed: str, *, is_agreed: bool) -> str:
        """What was typed to confirm; ends the command when whoever is asked does not agree."""
        if to_type and not typed:
            return answer_to(f"type {to_type} to confirm: ", f"say --yes and --type {to_type!r}")
        if not is_agreed and answer_to("go on? [y/N] ", "say --yes").lower() not in ("y", "yes"):
            refuse("nothing was changed")
        return typed

    def cancel(self, operation: BulkOperation, by: str, json: bool) -> None:
        if operation.ended_at_ms is not None:
            refuse(f"operation {operation.pk} has ended: it is {operation.state}")
        self.follow(bulk.cancel(operation, by=by), json)

    def follow(self, operation: BulkOperation, json: bool) -> None:
        """Run it, or watch the server that does, until it has ended."""
        try:
            while operation.state == BulkOperation.State.RUNNING:
                self.tell([f"operation {operation.pk}: {bulk_words.progress(operation)}"], json)
                began = time.monotonic()
                # Returns at once when a server is at it.
                bulk.run(operation.pk, seconds=TELL_EVERY_S, is_considerate=True)
                operation.refresh_from_db()
                if operation.state == BulkOperation.State.RUNNING:
                    time.sleep(max(0.0, began + TELL_EVERY_S - time.monotonic()))
        except KeyboardInterrupt:
            left = f"operation {operation.pk} goes on while a server runs: `bulk cancel {operation.pk}` ends it"
            print(f"\ntaskstore: {left}", file=sys.stderr)
            sys.exit(INTERRUPTED)
        self.tell(bulk_words.result(operation), json)
        if json:
            self.stdout.write(msgspec.json.encode(OperationAnswer.of(operation)).decode())

    def tell(self, lines: Iterable[str], json: bool = False) -> None:
        """To people; where a program reads the output, beside it."""
        out = self.stderr if json else self.stdout
        for line in lines:
            out.write(line)
        out.flush()


def add_question(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", nargs="+", metavar="TERM", help="as in the search box: group:mail state:failed")
    parser.add_argument("--take-claimed", action="store_true", help="also what live workers hold; their leases end")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for whoever wonders")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--type", default="", metavar="TEXT", help="what would have to be typed to confirm")
    add_outcome(parser)


def add_outcome(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", type=name, default=users_name(), metavar="NAME", help="default: your user name")
    parser.add_argument("--json", action="store_true", help="print the operation as GET /operations/N answers it")


def name(text: str) -> str:
    if not (text.strip() and text.isprintable() and len(text) <= LONGEST_NAME):
        raise argparse.ArgumentTypeError(f"a name has 1 to {LONGEST_NAME} printable characters")
    return f"{text} (command line)"


def time_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text} is no time: write it as 2026-01-31T12:00") from None


def parameters_of(options: dict[str, Any]) -> Parameters:
    """Of the options that the verb has."""
    return Parameters(
        to=options.get("to", ""),
        create=options.get("create", False),
        error=options.get("error"),
        priority=options.get("priority"),
        at_ms=options.get("at", 0),
        spread_minutes=options.get("spread_minutes", 0),
        takes_claimed=options["take_claimed"],
    )


def find(number: int) -> BulkOperation:
    operation = BulkOperation.objects.filter(pk=number).first() if 0 < number < 2**63 else None
    if operation is None:
        raise CannotRun(f"there is no operation {number}: see `bulk list`")
    return operation


def answer_to(question: str, instead: str) -> str:
    """What is typed on the terminal. Raises CannotRun that says what to do `instead` when there is none."""
    if not sys.stdin.isatty():
        raise CannotRun(f"nobody can be asked here: {instead}")
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


def refuse(text: str) -> NoReturn:
    print(f"taskstore: {text}", file=sys.stderr)
    sys.exit(REFUSED)
