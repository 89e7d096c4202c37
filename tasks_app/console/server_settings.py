"""Settings: what is in force on this server, and where it comes from. To be read: a deployment sets it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from taskstore.units import duration, size

from ..access.policy import Action
from ..core.heartbeats import LATE_MS, LOST_MS
from ..reading.clients import KEPT_MS
from ..writer.housekeeping import DAY_MINUTES, RATES_KEPT_MINUTES, WORK_KEPT_MINUTES
from . import words
from .pages import page

MINUTE_MS = 60_000
OWN_SETTINGS = "taskstore_project.settings"


def seconds(value: int) -> str:
    return duration(value * 1_000)


def minutes(value: int) -> str:
    return duration(value * 60_000)


def hours(value: int) -> str:
    return duration(value * 3_600_000)


def days(value: int) -> str:
    return f"{words.number(value)} day{'s' * (value != 1)}"


def per_second(value: int) -> str:
    return f"{words.number(value)} a second" if value else "no limit"


def per_minute(value: int) -> str:
    return f"{words.number(value)} a minute" if value else "no limit"


def words_or(empty: str) -> Callable[[str], str]:
    return lambda value: value or empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A setting, which has the name of its variable."""

    name: str
    says: str
    show: Callable[[Any], str] = str

    def is_in_force(self) -> bool:
        return hasattr(settings, self.name)

    def value(self) -> str:
        return self.show(getattr(settings, self.name))

    def source(self) -> str:
        """Where it was chosen."""
        if self.name in os.environ:
            return "environment"
        module = os.environ.get("DJANGO_SETTINGS_MODULE", OWN_SETTINGS)
        return "default" if module == OWN_SETTINGS else module


LIMITS: dict[str, Sequence[Limit]] = {
    "What the store takes": (
        Limit(name="TASKSTORE_MAX_DATA_BYTES", says="the largest data of a task", show=size),
        Limit(name="TASKSTORE_MAX_REQUEST_BYTES", says="the largest request", show=size),
        Limit(name="TASKSTORE_GRPC_MAX_MESSAGE_BYTES", says="the largest message through gRPC", show=size),
        Limit(name="TASKSTORE_MAX_CHANGES", says="adds, updates, deletes and depends of a commit", show=words.number),
        Limit(name="TASKSTORE_MAX_LABELS", says="labels of a task", show=words.number),
        Limit(name="TASKSTORE_MAX_CLAIM_GROUPS", says="groups of a claim", show=words.number),
        Limit(name="TASKSTORE_MAX_VALUES", says="values in the JSON of a request", show=words.number),
        Limit(name="TASKSTORE_MAX_BYTES_IN_FLIGHT", says="bodies of a client that are at work at once", show=size),
        Limit(name="TASKSTORE_MAX_GROUPS", says="groups that hold a task", show=words.number),
        Limit(name="TASKSTORE_MAX_TOKEN_GROUPS", says="of those that a token's list allows", show=words.number),
    ),
    "How long it keeps things": (
        Limit(name="TASKSTORE_DURABILITY", says="whether an answer waits for the disk"),
        Limit(name="TASKSTORE_HISTORY", says="what is kept of tasks that ended"),
        Limit(name="TASKSTORE_HISTORY_DAYS", says="for how long that is kept", show=days),
        Limit(name="TASKSTORE_HISTORY_ROWS", says="how many rows of it at most, on SQLite", show=words.number),
        Limit(name="TASKSTORE_AUDIT_DAYS", says="for how long it is kept who changed what", show=days),
        Limit(name="TASKSTORE_RETENTION", says="for how long tasks lie in some groups", show=words_or("for good")),
        Limit(name="TASKSTORE_COMMAND_LISTS", says="when lists are made of shell commands", show=words_or("none")),
        Limit(name="TASKSTORE_KEY_SECONDS", says="a request can be sent again with its Idempotency-Key", show=seconds),
    ),
    "Who gets in, and how often": (
        Limit(name="TASKSTORE_SESSION_IDLE_MINUTES", says="people are signed out without a page for", show=minutes),
        Limit(name="TASKSTORE_SESSION_HOURS", says="people are signed out anyway after", show=hours),
        Limit(name="TASKSTORE_SIGN_IN_RATE", says="passwords tried from one address", show=per_minute),
        Limit(name="TASKSTORE_WRONG_TOKEN_RATE", says="wrong tokens from one address", show=per_second),
        Limit(name="TASKSTORE_TOKEN_RATE", says="requests by one token", show=per_second),
        Limit(name="TASKSTORE_ADDRESS_RATE", says="requests from one address", show=per_second),
        Limit(name="TASKSTORE_SLOW_CLIENT_SECONDS", says="a client may take for a request's head", show=seconds),
        Limit(name="TASKSTORE_SOCKETS_PER_PERSON", says="live pages that one person may have open", show=words.number),
        Limit(name="TASKSTORE_SOCKETS", says="live pages that may be open", show=words.number),
        Limit(name="TASKSTORE_PROXIES", says="proxies in front, beyond which an address is looked for"),
    ),
    "How it ends": (
        Limit(name="TASKSTORE_DRAIN_SECONDS", says="it serves on, but is not ready any more, for", show=seconds),
    ),
    "What it tells": (
        Limit(name="TASKSTORE_METRICS_GROUPS", says="groups that /metrics tells by their names", show=words.number),
    ),
}

# What nobody has to choose, and how long it is kept.
FIXED = {
    "What happened in each group, by the minute to the hour": duration(RATES_KEPT_MINUTES * MINUTE_MS),
    "How many tasks were in each state": duration(DAY_MINUTES * MINUTE_MS),
    "How much each worker did": duration(WORK_KEPT_MINUTES * MINUTE_MS),
    "A worker that has been silent": duration(KEPT_MS),
}


@require_safe
@page(Action.ADMINISTER)
def limits(request: HttpRequest) -> HttpResponse:
    shown = {title: [limit for limit in group if limit.is_in_force()] for title, group in LIMITS.items()}
    context = {"limits": shown, "fixed": FIXED, "late": duration(LATE_MS), "lost": duration(LOST_MS)}
    return render(request, "console/limits.html", context)
