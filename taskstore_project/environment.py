"""Read environment variables by type, and stop at an invalid one with its name.

Each raises ImproperlyConfigured.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from environs import Env
from environs.exceptions import EnvError

from tasks_app.conf import command_rules
from tasks_app.conf.retention import GROUPS, rules_in
from taskstore.types import sentences

env = Env()

POSTGRESQL_SCHEMES = ("postgres://", "postgresql://")
SQLITE_SCHEME = "sqlite:///"  # Then the path, for example sqlite:////srv/shop/db.sqlite3.
# As in the store (PATIENCE_S): an unreachable database is reported within five seconds.
PATIENCE_S = 4.5
# One connection for the writer, one spare, the rest for pages and queries.
POOL = {"min_size": 2, "max_size": 16, "timeout": PATIENCE_S}
# Defaults that an address can override. A connection is closed after five silent seconds, and an attempt to connect
# after two: TCP retransmits at ever longer intervals, so a new connection works sooner once the network is back.
# Servers that refuse changes, such as standbys and former primaries, are skipped.
CONNECTING = {
    "connect_timeout": 2,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 5_000,
    "target_session_attrs": "read-write",
}
# Pages do not wait long for a standby, as they can use the primary.
CONNECTING_TO_REPLICA = {**CONNECTING, "target_session_attrs": "any"}
REPLICA_POOL = {"min_size": 0, "max_size": 8, "timeout": 2}


@dataclass(frozen=True, slots=True)
class Reading:
    """The valid values of a variable, and its default, as in docs/settings.md."""

    default: str
    takes: str


READINGS: dict[str, Reading] = {}


def folder(name: str, default: Path) -> Path:
    return Path(env.str(name, "") or default).expanduser().absolute()


def file(name: str) -> Path | None:
    path = env.str(name, "")
    return Path(path).expanduser().absolute() if path else None


def files(name: str) -> list[Path]:
    """Read files separated by colons, as in PATH."""
    return [Path(path).expanduser().absolute() for path in env.str(name, "").split(os.pathsep) if path]


def choice(name: str, *choices: str) -> str:
    """Read one of `choices`; the first is the default."""
    READINGS[name] = Reading(choices[0], " or ".join((", ".join(choices[:-1]), choices[-1])))
    text = env.str(name, choices[0])
    if text not in choices:
        raise ImproperlyConfigured(f"{name} {sentences.one_of(choices, text)}")
    return text


def number(name: str, default: int, *, least: int = 1, most: int | None = None) -> int:
    READINGS[name] = Reading(str(default), f"{least} to {most}" if most else f"{least} or more")
    right = f"{name} must be an integer " + (f"between {least} and {most}" if most else f"of at least {least}")
    try:
        value: int = env.int(name, default)
    except EnvError:
        raise ImproperlyConfigured(f'{right}, not "{env.str(name)}"') from None
    if value < least or (most is not None and value > most):
        raise ImproperlyConfigured(f"{right}, not {value}")
    return value


def retention(name: str) -> str:
    """Read how long groups keep their tasks, for tasks_app.conf.retention; empty: without a limit."""
    READINGS[name] = Reading(GROUPS, "GROUP=7d or GROUP=forever, with a space between rules")
    text = env.str(name, GROUPS)
    try:
        rules_in(text)
    except ValueError as problem:
        raise ImproperlyConfigured(f"{name}: {problem}") from None
    return text


def switch(name: str) -> bool:
    """Read a switch, which is off by default."""
    try:
        return bool(env.bool(name, False))
    except EnvError:
        raise ImproperlyConfigured(f'{name} must be a boolean such as 1 or 0, not "{env.str(name)}"') from None


def command_lists(name: str) -> str:
    """Read the rules for lists of shell commands, for tasks_app.conf.command_rules."""
    takes = f"PROJECT=COUNT/DURATION/AGE, with a space between rules; at most {command_rules.MOST_COMMANDS} commands"
    READINGS[name] = Reading(command_rules.DEFAULT, takes)
    text = env.str(name, command_rules.DEFAULT)
    try:
        command_rules.rules_in(text)
    except ValueError as problem:
        raise ImproperlyConfigured(f"{name}: {problem}") from None
    return text


def public_url(name: str) -> str:
    """Read the address of the server for browsers, without a trailing slash; empty when not set."""
    url = env.str(name, "").rstrip("/")
    if url and not re.fullmatch(r"https?://([\w.-]+|\[[0-9a-f:]+\])(:\d{1,5})?", url, re.ASCII | re.IGNORECASE):
        raise ImproperlyConfigured(f'{name} must be an address such as https://tasks.example.org, not "{url}"')
    return url


def secret(name: str) -> str:
    """Read the first line of the file in the variable, as containers and systemd pass secrets; empty when not set."""
    path = file(name)
    if not path:
        return ""
    try:
        line = path.read_text().partition("\n")[0]
    except (OSError, ValueError) as problem:
        raise ImproperlyConfigured(f"{name}: can't read {path}: {problem}") from None
    if not line:
        raise ImproperlyConfigured(f"{name}: the first line of {path} must not be empty")
    return line


def database(name: str, password_name: str, *, sqlite: Path, durable: bool) -> dict[str, Any]:
    """Return Django's description of the database in the variable; without it, of this SQLite file."""
    url, password = env.str(name, ""), secret(password_name)
    if url.startswith(POSTGRESQL_SCHEMES):
        return with_password(postgresql_database(name, url), password, f"{name} and {password_name}")
    if url.startswith(SQLITE_SCHEME) and not password:
        return sqlite_database(Path(url.removeprefix(SQLITE_SCHEME)).absolute(), durable=durable)
    if password and not url:
        # Otherwise, the server would silently start an empty store on SQLite.
        raise ImproperlyConfigured(f"{password_name} needs PostgreSQL: set {name} too, or unset {password_name}")
    if not url:
        return sqlite_database(sqlite, durable=durable)
    # The error leaves out the rest of the address, which may contain a password.
    scheme = url.partition(":")[0]
    raise ImproperlyConfigured(
        f'{name} must start with postgresql:// or sqlite:///, not "{scheme}", or be empty for SQLite'
    )


def with_password(database: dict[str, Any], password: str, names: str) -> dict[str, Any]:
    """Return the database with this password; an empty one keeps the password of the address."""
    if password and database["PASSWORD"]:
        raise ImproperlyConfigured(f"{names} must not both have a password: remove one")
    return database | {"PASSWORD": password or database["PASSWORD"]}


def sqlite_database(file: Path, *, durable: bool) -> dict[str, Any]:
    synchronous = "FULL" if durable else "NORMAL"
    return {
        "ENGINE": "taskstore_project.sqlite",
        "NAME": file,
        "OPTIONS": {
            # A transaction that starts to write later would fail at once instead of waiting.
            "transaction_mode": "IMMEDIATE",
            "timeout": PATIENCE_S,
            "init_command": f"PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}",
        },
    }


def replica_database(name: str) -> dict[str, Any]:
    """Return Django's description of the standby in the variable; empty when it is not set."""
    url = env.str(name, "")
    if url and not (url.startswith(POSTGRESQL_SCHEMES) and env.str("DATABASE_URL", "")):
        raise ImproperlyConfigured(
            f"{name} must start with postgresql://, and be a standby of the database in DATABASE_URL"
        )
    if not url:
        return {}
    return {**postgresql_database(name, url, CONNECTING_TO_REPLICA, REPLICA_POOL), "TEST": {"MIRROR": "default"}}


def direct_database(name: str, password_name: str) -> dict[str, Any]:
    """Return psycopg's parameters for the PostgreSQL in the variable; empty when it is not set.

    It is the server behind DATABASE_URL and has the same password, unless its address has another one.
    """
    url = env.str(name, "")
    if url and not url.startswith(POSTGRESQL_SCHEMES):
        raise ImproperlyConfigured(f"{name} must start with postgresql://")
    if not url:
        return {}
    password = secret(password_name)
    return {**CONNECTING, **({"password": password} if password else {}), **postgresql_parameters(name, url)}


def postgresql_parameters(name: str, url: str) -> dict[str, Any]:
    # libpq's own parser, which supports sockets, several hosts and TLS options.
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parameters = conninfo_to_dict(url)
    except ProgrammingError as problem:
        raise ImproperlyConfigured(f"{name} must be a valid PostgreSQL address: {str(problem).strip()}") from None
    if not parameters.get("dbname"):
        raise ImproperlyConfigured(f"{name} must name a database, such as postgresql://user:password@host/database")
    return dict(parameters)


def postgresql_database(
    name: str, url: str, connecting: Mapping[str, Any] = CONNECTING, pool: Mapping[str, Any] = POOL
) -> dict[str, Any]:
    parameters = postgresql_parameters(name, url)
    return {
        "ENGINE": "taskstore_project.postgresql",
        "NAME": parameters.pop("dbname"),
        "USER": parameters.pop("user", ""),
        "PASSWORD": parameters.pop("password", ""),
        "HOST": parameters.pop("host", ""),
        "PORT": parameters.pop("port", ""),
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {"pool": dict(pool), **connecting, **parameters},
    }
