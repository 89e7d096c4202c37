"""Django's `flush`, which also empties the audit log: in a database of tests, or for whoever has agreed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.management import CommandError
from django.core.management.commands import flush
from django.db import IntegrityError, connections, transaction
from django.test.utils import _TestState

from ...database import triggers


class Command(flush.Command):
    def handle(self, **options: Any) -> None:
        # Django's runner, and pytest's, have set this up before they make the databases of their tests.
        is_test, is_agreed = hasattr(_TestState, "saved_data"), options["interactive"]
        connection = connections[options["database"]]
        operations: Any = connection.ops
        plainly = operations.execute_sql_flush

        def unguarded(statements: Sequence[str]) -> None:
            """Run between Django's question and the end of its work. At no moment is there no guard for others."""
            with transaction.atomic(using=connection.alias), triggers.lifted(connection):
                plainly(statements)

        if is_test or is_agreed:
            operations.execute_sql_flush = unguarded
        if is_agreed:
            self.stdout.write("The audit log will be emptied, too.")
        try:
            super().handle(**options)
        except CommandError as failed:
            if is_test or is_agreed or not isinstance(failed.__cause__, IntegrityError):
                raise
            why, *_ = str(failed.__cause__).splitlines()
            raise CommandError(
                f"Nothing was deleted: {why}. To delete them all the same, run `flush` without --noinput."
            ) from failed
        finally:
            operations.__dict__.pop("execute_sql_flush", None)
