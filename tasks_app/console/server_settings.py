"""Settings: the values in force on this server and their sources. Read-only: the deployment sets them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from taskstore.types.groups import LATE_MS, LOST_MS
from taskstore.units import counted, duration, number, size

from ..access.policy import Action
from ..reading.clients import KEPT_MS
from ..writer.housekeeping import DAY_MINUTES, RATES_KEPT_MINUTES, WORK_KEPT_MINUTES
from .pages import reads

MINUTE_MS = 60_000
OWN_SETTINGS = "taskstore_project.settings"


def seconds(value: int) -> str:
    return duration(value * 1_000)


def minutes(value: int) -> str:
    return duration(value * 60_000)


def hours(value: int) -> str:
    return duration(value * 3_600_000)


def days(value: int) -> str:
    return counted(value, "day")


def per_second(value: int) -> str:
    return f"{number(value)} per second" if value else "no limit"


def per_minute(value: int) -> str:
    return f"{number(value)} per minute" if value else "no limit"


def words_or(empty: str) -> Callable[[str], str]:
    return lambda value: value or empty


# The settings in force, each with its meaning and how its value is shown.
LIMITS: dict[str, Sequence[tuple[str, str, Callable[[Any], str]]]] = {
    "Request limits": (
        ("TASKSTORE_MAX_DATA_BYTES", "maximum data size of a task", size),
        ("TASKSTORE_MAX_REQUEST_BYTES", "maximum request size", size),
        ("TASKSTORE_MAX_ANSWER_BYTES", "maximum size of a response with tasks", size),
        ("TASKSTORE_MAX_ANSWERS_BYTES", "maximum size of concurrent large responses", size),
        ("TASKSTORE_GRPC_MAX_MESSAGE_BYTES", "maximum gRPC message size", size),
        ("TASKSTORE_MAX_CHANGES", "maximum adds, updates, deletes and depends per commit", number),
        ("TASKSTORE_MAX_LABELS", "maximum labels per task", number),
        ("TASKSTORE_MAX_CLAIM_GROUPS", "maximum groups per claim", number),
        ("TASKSTORE_MAX_VALUES", "maximum JSON values per request", number),
        ("TASKSTORE_MAX_PLAN_BYTES", "maximum size of everything that a batch adds later", size),
        ("TASKSTORE_MAX_BYTES_IN_FLIGHT", "maximum size of a client's concurrent requests", size),
        ("TASKSTORE_MAX_GROUPS", "maximum number of groups", number),
        ("TASKSTORE_MAX_TOKEN_GROUPS", "maximum number of groups allowed by a token's list", number),
    ),
    "Durability and retention": (
        ("TASKSTORE_DURABILITY", "durability of commits", str),
        ("TASKSTORE_HISTORY", "history of finished tasks", str),
        ("TASKSTORE_HISTORY_DAYS", "history retention", days),
        ("TASKSTORE_HISTORY_ROWS", "maximum history rows on SQLite", number),
        ("TASKSTORE_HISTORY_BYTES", "maximum size of the history on PostgreSQL; 0: unlimited", size),
        ("TASKSTORE_AUDIT_DAYS", "audit retention", days),
        ("TASKSTORE_RETENTION", "task retention by group", words_or("unlimited")),
        ("TASKSTORE_COMMAND_LISTS", "rules for bundling shell commands into lists", words_or("none")),
        ("TASKSTORE_KEY_SECONDS", "lifetime of an Idempotency-Key", seconds),
        ("TASKSTORE_MISSING_FUNCTION_MINUTES", "time until a function that no worker has is an alarm", minutes),
    ),
    "Sessions and rate limits": (
        ("TASKSTORE_SESSION_IDLE_MINUTES", "inactivity before sign-out", minutes),
        ("TASKSTORE_SESSION_HOURS", "maximum session length", hours),
        ("TASKSTORE_SIGN_IN_RATE", "sign-in attempts per address", per_minute),
        ("TASKSTORE_WRONG_TOKEN_RATE", "wrong tokens per address", per_second),
        ("TASKSTORE_TOKEN_RATE", "requests per token", per_second),
        ("TASKSTORE_ADDRESS_RATE", "requests per address", per_second),
        ("TASKSTORE_SLOW_CLIENT_SECONDS", "maximum time for a request's headers", seconds),
        ("TASKSTORE_SOCKETS_PER_PERSON", "maximum open live pages per person", number),
        ("TASKSTORE_SOCKETS", "maximum open live pages", number),
        ("TASKSTORE_PROXIES", "trusted proxies in front of the server", str),
    ),
    "Shutdown": (("TASKSTORE_DRAIN_SECONDS", "drain time before shutdown", seconds),),
    "Metrics": (
        ("TASKSTORE_METRICS_GROUPS", "maximum groups listed by name in /metrics", number),
        ("TASKSTORE_METRICS_LABEL", "label by which /metrics counts tasks", words_or("none")),
    ),
}

# Retention that can't be set.
FIXED = {
    "Activity of each group": duration(RATES_KEPT_MINUTES * MINUTE_MS),
    "Task counts by state": duration(DAY_MINUTES * MINUTE_MS),
    "Work done by each worker": duration(WORK_KEPT_MINUTES * MINUTE_MS),
    "Workers without a heartbeat": duration(KEPT_MS),
}


@reads(Action.ADMINISTER)
def limits(request: HttpRequest) -> HttpResponse:
    shown = {
        title: [
            (name, says, show(getattr(settings, name)), _source(name))
            for name, says, show in group
            if hasattr(settings, name)
        ]
        for title, group in LIMITS.items()
    }
    context = {"limits": shown, "fixed": FIXED, "late": duration(LATE_MS), "lost": duration(LOST_MS)}
    return render(request, "tasks_app/limits.html", context)


def _source(name: str) -> str:
    """Return the place that sets it: the environment, the default, or a settings module."""
    if name in os.environ:
        return "environment"
    module = os.environ.get("DJANGO_SETTINGS_MODULE", OWN_SETTINGS)
    return "default" if module == OWN_SETTINGS else module
