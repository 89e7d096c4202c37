"""The history of tasks and the audit log, read-only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse

from taskstore.types.scalars import whole

from ..access.policy import Action
from ..conf import retention
from ..models import AuditEntry, EndedTask
from .keyset import KeyedAdmin, moment


@admin.register(EndedTask)
class EndedTaskAdmin(KeyedAdmin):
    list_display = ("id", "group", "ending", "successor", "ended", "by", "reason")
    search_fields = ("id",)
    search_help_text = "The id of a task, or its origin."
    allowed_lookups = ("origin",)
    available = moment("available_at_ms", "available from")
    created = moment("created_at_ms", "created")
    made = moment("made_at_ms", "id assigned")
    ended = moment("ended_at_ms", "ended")
    fields = (
        "id", "group", "origin", "owner", "leased", "priority", "claims", "error", "created", "made", "made_by_commit",
        "available", "ending", "successor", "ended", "by", "reason", "ended_by_commit",
    )  # fmt: skip

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if retention.kept() != retention.FULL:
            self.message_user(request, f"Some ids are missing: {retention.in_words()}.", messages.WARNING)
        return super().changelist_view(request, extra_context)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[EndedTask], search_term: str
    ) -> tuple[QuerySet[EndedTask], bool]:
        if not search_term:
            return queryset, False
        task_id = whole(search_term.strip())
        return queryset.filter(Q(id=task_id) | Q(origin=task_id)) if task_id is not None else queryset.none(), False

    @admin.display(boolean=True)
    def leased(self, task: EndedTask) -> bool:
        return task.leased

    @admin.display
    def by(self, task: EndedTask) -> str:
        return task.operator or f"client {task.ended_by}"


@admin.register(AuditEntry)
class AuditEntryAdmin(KeyedAdmin):
    needs = Action.OPERATE
    list_display = ("id", "at", "actor", "action", "group", "selection", "done", "skipped", "reason")
    search_fields = ("actor",)
    search_help_text = "The exact name of the actor."
    fields = ("at", "actor", "action", "group", "selection", "reason", "done", "skipped", "details", "duration_ms")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[AuditEntry], search_term: str
    ) -> tuple[QuerySet[AuditEntry], bool]:
        return (queryset.filter(actor=search_term) if search_term else queryset), False
