"""What is in the store while it is sent what nobody should send, and who sends it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from tasks_app.access import tokens
from tasks_app.models import (
    AuditEntry,
    BulkOperation,
    Client,
    EndedTask,
    KeptAnswer,
    PausedGroup,
    Payload,
    SavedSearch,
    Scope,
    Task,
    Token,
)
from taskstore.types.tasks import NewTask

BOB = 2
# Of which a request could leave something behind.
MODELS = (Task, Payload, EndedTask, KeptAnswer, PausedGroup, BulkOperation, Client, SavedSearch, AuditEntry)


def three_tasks() -> dict[str, int]:
    """Ids: of a task that anyone may take, of another one, and of one that is Bob's for a while."""
    adds = [NewTask(group="mail", data=b"1"), NewTask(group="reports"), NewTask(group="mail", timespec_ms=-60_000)]
    tasks = Task.objects.commit(owner=BOB, adds=adds)
    return dict(zip(["$ready", "$other", "$leased"], [task.id for task in tasks], strict=True))


def secret_of(who: str) -> str:
    """A token of the `operator`, or of somebody who may less: `nobody`, `reader`, `worker`, `submitter`,
    `of PATTERN`, `expired`, `revoked`. Empty: none."""
    match who.split():
        case ["nobody"]:
            return ""
        case ["reader"]:
            return tokens.create("Ann", Scope.READ)[1]
        case ["worker"]:
            return tokens.create("Ann", Scope.WORK)[1]
        case ["submitter"]:
            return tokens.create("Ann", Scope.COMMANDS)[1]
        case ["of", pattern]:
            return tokens.create("Ann", Scope.OPERATE, [pattern])[1]
    token, secret = tokens.create("Ann", Scope.OPERATE)
    past = timezone.now() - timedelta(seconds=1)
    if who == "expired":
        Token.objects.filter(pk=token.pk).update(expires_at=past)
    if who == "revoked":
        Token.objects.filter(pk=token.pk).update(revoked_at=past)
    return secret


def everything() -> list[Any]:
    """All rows there are."""
    return [list(model._base_manager.order_by("pk").values()) for model in MODELS]
