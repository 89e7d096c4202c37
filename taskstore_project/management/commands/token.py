"""Create, list and revoke the tokens of programs, also while a server runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from tasks_app.access import tokens
from tasks_app.models import Scope, Token
from taskstore.errors import InvalidInput
from taskstore_project.base_command import CannotRun, ProjectCommand, actor, lines_of, typed
from taskstore_project.startup_migration import need_store

from ...base_command import number_between

MOST_DAYS = 36_500
COLUMNS = ("id", "name", "scope", "groups", "clients", "created", "expires", "last used", "state")


class Command(ProjectCommand):
    help = "Create, list and revoke access tokens for programs."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="create | list | revoke")
        create = verbs.add_parser("create", help="create a token and print it once")
        create.add_argument("name", metavar="NAME", help="name of the program that uses it")
        create.add_argument(
            "--scope",
            choices=Scope.values,
            required=True,
            help="read allows reading; work also adding, claiming and committing tasks; operate also the actions of "
            "operators; commands includes work, and also allows shell commands",
        )
        create.add_argument(
            "--groups",
            nargs="+",
            default=[],
            metavar="GROUP",
            help="restrict the token to these groups; 'pay/*' matches names that start with pay/ (default: all)",
        )
        create.add_argument(
            "--clients",
            nargs="+",
            default=[],
            metavar="ID",
            help="restrict the token to these client ids (default: all clients)",
        )
        create.add_argument(
            "--expires",
            type=number_between(1, MOST_DAYS, "a number of days"),
            metavar="DAYS",
            help="days until the token expires (default: never)",
        )
        verbs.add_parser("list", help="list the tokens, without their secrets")
        revoke = verbs.add_parser("revoke", help="revoke a token, so that it loses access")
        revoke.add_argument("token", metavar="NAME|ID")

    def handle(self, *, verb: str, **options: Any) -> None:
        need_store()
        match verb:
            case "create":
                self.create(**{name: options[name] for name in ("name", "scope", "groups", "clients", "expires")})
            case "list":
                self.list()
            case "revoke":
                self.revoke(find(options["token"]))

    def create(self, name: str, scope: str, groups: Sequence[str], clients: Sequence[str], expires: int | None) -> None:
        expires_at = timezone.now() + timedelta(days=expires) if expires else None
        try:
            _, secret = tokens.create(name, scope, groups, expires_at, tokens.client_ids(clients), actor())
        except InvalidInput as mistake:
            raise CannotRun(str(mistake)) from None
        self.stdout.write(secret)

    def list(self) -> None:
        for line in lines_of([COLUMNS, *(shown(token) for token in Token.objects.order_by("id"))]):
            self.stdout.write(line)

    def revoke(self, token: Token) -> None:
        tokens.revoke(token, actor())


def find(name_or_id: str) -> Token:
    """Return the only unrevoked token of this name or id. Raises CannotRun when there is none, or more than one."""
    alive = Token.objects.filter(revoked_at=None)
    match [token for token in alive if name_or_id in (str(token.pk), token.name)]:  # A name can't be a number.
        case [token]:
            return token
        case []:
            raise CannotRun(f"token {name_or_id!a} is unknown or revoked: `{typed('token list')}` lists tokens")
        case several:
            ids = ", ".join(str(token.pk) for token in several)
            raise CannotRun(f"{len(several)} tokens have the name {name_or_id!r}: revoke them by id ({ids})")


def shown(token: Token) -> tuple[str, ...]:
    return (
        str(token.pk),
        token.name,
        token.scope,
        " ".join(token.groups) or "all",
        " ".join(map(str, token.clients)) or "all",
        day(token.created_at),
        day(token.expires_at),
        day(token.last_used_at),
        tokens.state_of(token),
    )


def day(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d}" if at else "never"
