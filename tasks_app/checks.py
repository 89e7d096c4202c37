"""Django system checks for settings that would harm the store, in this project or in one that installs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import django
from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections, router
from django.urls import NoReverseMatch, reverse

from taskstore.types import sentences

from .conf import command_rules, retention
from .database import dialect_of, table_version

DATABASES = ("sqlite", "postgresql")
CONSOLE_APPS = ("django.contrib.sessions", "django.contrib.messages", "django.contrib.staticfiles")
CONSOLE_NEEDS = (
    "django.template.context_processors.request",
    "django.contrib.auth.context_processors.auth",
    "django.contrib.messages.context_processors.messages",
)
DURABILITIES = ("strict", "opportunistic")


@register(Tags.compatibility)
def check_store(**_: Any) -> list[CheckMessage]:
    """Whether the database and its settings keep what the store promises."""
    return [*_database(), *_choices(), *_rules(), *_descriptors(), *_tasks(), *_console()]


@register(Tags.database)
def check_database(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Whether the database itself can hold a store, when Django may ask it."""
    from .models import Task

    alias = router.db_for_write(Task)
    if alias not in (databases or ()) or connections[alias].vendor not in DATABASES:
        return []
    connections[alias].ensure_connection()
    flaw = dialect_of(alias).flaw(connections[alias])
    if not flaw and table_version.version_of(alias) is table_version.Version.UNRELEASED:
        flaw = f"it {table_version.UNRELEASED}"
    return [Error(f'The database of DATABASES["{alias}"] can not be used: {flaw}.', id="tasks_app.E013")] * bool(flaw)


@register(Tags.security)
def check_exposure(**_: Any) -> list[CheckMessage]:
    """Whether a server that other machines reach gives nothing away."""
    url = getattr(settings, "TASKSTORE_PUBLIC_URL", "")
    return [*_openness(), *_encryption(url)] if url else []


def _database() -> Iterator[CheckMessage]:
    from .models import Task  # Models can be imported only when the apps are ready.

    alias = router.db_for_write(Task)
    connection = connections[alias]
    if connection.vendor not in DATABASES:
        yield Error(
            f"Task Store does not support {connection.display_name}.",
            hint=f'Use PostgreSQL or SQLite in DATABASES["{alias}"], or route tasks_app to another database.',
            id="tasks_app.E001",
        )
    mode = connection.settings_dict["OPTIONS"].get("transaction_mode") or "DEFERRED"
    if connection.vendor == "sqlite" and mode.upper() != "IMMEDIATE":
        yield Error(
            f"Transactions on SQLite begin as {mode.upper()}, so concurrent writers fail with `database is locked`.",
            hint=f'Set DATABASES["{alias}"]["OPTIONS"]["transaction_mode"] = "IMMEDIATE".',
            id="tasks_app.E002",
        )


def _choices() -> Iterator[CheckMessage]:
    durability = getattr(settings, "TASKSTORE_DURABILITY", "strict")
    for number, name, choices, chosen in (
        (3, "TASKSTORE_DURABILITY", DURABILITIES, durability),
        (5, "TASKSTORE_HISTORY", retention.KEPT, retention.kept()),
    ):
        if chosen not in choices:
            yield Error(f"{name} {sentences.one_of(choices, chosen)}.", id=f"tasks_app.E{number:03}")


def _rules() -> Iterator[CheckMessage]:
    lists = str(getattr(settings, "TASKSTORE_COMMAND_LISTS", command_rules.DEFAULT))
    for number, name, parse, default in (
        (11, "TASKSTORE_RETENTION", retention.rules, retention.GROUPS),
        (12, "TASKSTORE_COMMAND_LISTS", lambda: command_rules.rules_in(lists), command_rules.DEFAULT),
    ):
        try:
            parse()
        except ValueError as problem:
            hint = f'For example, the default is "{default}".'
            yield Error(f"{name}: {problem}.", hint=hint, id=f"tasks_app.E{number:03}")


def _descriptors() -> Iterator[CheckMessage]:
    from .reading import descriptors  # Protobuf takes time to import, which commands that check nothing need not spend.

    for problem in descriptors.known().problems:
        yield Error(
            f"TASKSTORE_DESCRIPTORS: {problem}.",
            hint="Create it with `protoc --include_imports --descriptor_set_out=FILE`.",
            id="tasks_app.E006",
        )


def _tasks() -> Iterator[CheckMessage]:
    if getattr(settings, "TASKS", None) and django.VERSION < (6, 0) and not apps.is_installed("django_tasks"):
        yield Warning(
            "On Django 5.2 the setting TASKS belongs to the package django-tasks, whose app is not installed.",
            hint='Install django-tasks and add "django_tasks" to INSTALLED_APPS.',
            id="tasks_app.W002",
        )


def _console() -> Iterator[CheckMessage]:
    """Whether the console has what it needs, where the project shows it."""
    if not getattr(settings, "ROOT_URLCONF", ""):  # Of a project that only works.
        return
    try:
        reverse("tasks_app:overview")
    except NoReverseMatch:
        return
    options: list[Any] = [each.get("OPTIONS", {}) for each in settings.TEMPLATES if each.get("APP_DIRS")]
    processors = {name for each in options for name in each.get("context_processors", ())}
    lacking = [f'"{name}" to INSTALLED_APPS' for name in CONSOLE_APPS if not apps.is_installed(name)]
    lacking += [f'"{name}" to the context_processors of TEMPLATES' for name in CONSOLE_NEEDS if name not in processors]
    if lacking:
        yield Error("The console lacks a part of Django.", hint=f"Add {', '.join(lacking)}.", id="tasks_app.E014")


def _openness() -> Iterator[CheckMessage]:
    if settings.DEBUG or "*" in settings.ALLOWED_HOSTS:
        yield Error(
            "The server is public, but shows debug pages (DEBUG) or accepts any host name (ALLOWED_HOSTS).",
            hint="Set DEBUG = False and list the hosts, or leave TASKSTORE_PUBLIC_URL empty.",
            id="tasks_app.E004",
        )


def _encryption(url: str) -> Iterator[CheckMessage]:
    address = urlsplit(url)
    if address.scheme == "http" and not _is_loopback(address.hostname or ""):
        yield Warning(
            f"Passwords and tokens are sent to {url} unencrypted.",
            hint="Use a proxy with TLS, and an https:// address in TASKSTORE_PUBLIC_URL.",
            id="tasks_app.W001",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
