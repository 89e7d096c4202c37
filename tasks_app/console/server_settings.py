"""Settings: the values in force on this server and their sources. Read-only: the deployment sets them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from taskstore.types.groups import LATE_MS, LOST_MS
from taskstore.units import counted, duration, number, size

from ..access.policy import Action
from ..reading.clients import KEPT_MS
from ..writer.housekeeping import DAY_MINUTES, RATES_KEPT_MINUTES, WORK_KEPT_MINUTES
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
    return counted(value, "day")


def per_second(value: int) -> str:
    return f"{number(value)} per second" if value else "no limit"


def per_minute(value: int) -> str:
    return f"{number(value)} per minute" if value else "no limit"


def words_or(empty: str) -> Callable[[str], str]:
    return lambda value: value or empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A setting, named like its environment variable."""

    name: str
    says: str
    show: Callable[[Any], str] = str

    def is_in_force(self) -> bool:
        return hasattr(settings, self.name)

    def value(self) -> str:
        return self.show(getattr(settings, self.name))

    def source(self) -> str:
        """Return the place that sets it: the environment, the default, or a settings module."""
        if self.name in os.environ:
            return "environment"
        module = os.environ.get("DJANGO_SETTINGS_MODULE", OWN_SETTINGS)
        return "default" if module == OWN_SETTINGS else module


LIMITS: dict[str, Sequence[Limit]] = {
    "Request limits": (
        Limit(name="TASKSTORE_MAX_DATA_BYTES", says="maximum data size of a task", show=size),
        Limit(name="TASKSTORE_MAX_REQUEST_BYTES", says="maximum request size", show=size),
        Limit(name="TASKSTORE_MAX_ANSWER_BYTES", says="maximum size of a response with tasks", show=size),
        Limit(name="TASKSTORE_MAX_ANSWERS_BYTES", says="maximum size of concurrent large responses", show=size),
        Limit(name="TASKSTORE_GRPC_MAX_MESSAGE_BYTES", says="maximum gRPC message size", show=size),
        Limit(
            name="TASKSTORE_MAX_CHANGES",
            says="maximum adds, updates, deletes and depends per commit",
            show=number,
        ),
        Limit(name="TASKSTORE_MAX_LABELS", says="maximum labels per task", show=number),
        Limit(name="TASKSTORE_MAX_CLAIM_GROUPS", says="maximum groups per claim", show=number),
        Limit(name="TASKSTORE_MAX_VALUES", says="maximum JSON values per request", show=number),
        Limit(name="TASKSTORE_MAX_BYTES_IN_FLIGHT", says="maximum size of a client's concurrent requests", show=size),
        Limit(name="TASKSTORE_MAX_GROUPS", says="maximum number of groups", show=number),
        Limit(
            name="TASKSTORE_MAX_TOKEN_GROUPS",
            says="maximum number of groups allowed by a token's list",
            show=number,
        ),
    ),
    "Durability and retention": (
        Limit(name="TASKSTORE_DURABILITY", says="durability of commits"),
        Limit(name="TASKSTORE_HISTORY", says="history of finished tasks"),
        Limit(name="TASKSTORE_HISTORY_DAYS", says="history retention", show=days),
        Limit(name="TASKSTORE_HISTORY_ROWS", says="maximum history rows on SQLite", show=number),
        Limit(name="TASKSTORE_AUDIT_DAYS", says="audit retention", show=days),
        Limit(name="TASKSTORE_RETENTION", says="task retention by group", show=words_or("unlimited")),
        Limit(
            name="TASKSTORE_COMMAND_LISTS", says="rules for bundling shell commands into lists", show=words_or("none")
        ),
        Limit(name="TASKSTORE_KEY_SECONDS", says="lifetime of an Idempotency-Key", show=seconds),
    ),
    "Sessions and rate limits": (
        Limit(name="TASKSTORE_SESSION_IDLE_MINUTES", says="inactivity before sign-out", show=minutes),
        Limit(name="TASKSTORE_SESSION_HOURS", says="maximum session length", show=hours),
        Limit(name="TASKSTORE_SIGN_IN_RATE", says="sign-in attempts per address", show=per_minute),
        Limit(name="TASKSTORE_WRONG_TOKEN_RATE", says="wrong tokens per address", show=per_second),
        Limit(name="TASKSTORE_TOKEN_RATE", says="requests per token", show=per_second),
        Limit(name="TASKSTORE_ADDRESS_RATE", says="requests per address", show=per_second),
        Limit(name="TASKSTORE_SLOW_CLIENT_SECONDS", says="maximum time for a request's headers", show=seconds),
        Limit(name="TASKSTORE_SOCKETS_PER_PERSON", says="maximum open live pages per person", show=number),
        Limit(name="TASKSTORE_SOCKETS", says="maximum open live pages", show=number),
        Limit(name="TASKSTORE_PROXIES", says="trusted proxies in front of the server"),
    ),
    "Shutdown": (Limit(name="TASKSTORE_DRAIN_SECONDS", says="drain time before shutdown", show=seconds),),
    "Metrics": (Limit(name="TASKSTORE_METRICS_GROUPS", says="maximum groups listed by name in /metrics", show=number),),
}

# Retention that can't be set.
FIXED = {
    "Activity of each group": duration(RATES_KEPT_MINUTES * MINUTE_MS),
    "Task counts by state": duration(DAY_MINUTES * MINUTE_MS),
    "Work done by each worker": duration(WORK_KEPT_MINUTES * MINUTE_MS),
    "Workers without a heartbeat": duration(KEPT_MS),
}


@require_safe
@page(Action.ADMINISTER)
def limits(request: HttpRequest) -> HttpResponse:
    shown = {title: [limit for limit in group if limit.is_in_force()] for title, group in LIMITS.items()}
    context = {"limits": shown, "fixed": FIXED, "late": duration(LATE_MS), "lost": duration(LOST_MS)}
    return render(request, "tasks_app/limits.html", context)
