"""The history of tasks and the audit log, read-only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from taskstore.types.scalars import whole

from ..access import tokens
from ..access.policy import Action, actor_of, may
from ..conf import retention
from ..database import atomic
from ..models import AuditEntry, EndedTask, Token
from .keyset import KeyedAdmin, has_console, moment


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


# ---- The admin of tokens: view and revoke them. The console creates them


@admin.register(Token)
class TokenAdmin(KeyedAdmin):
    needs = Action.ADMINISTER
    fields = (
        *("name", "scope", "which_groups", "which_clients"),
        *("created_at", "expires_at", "last_used_at", "revoked_at", "state"),
    )
    list_display = ("id", "name", "scope", "which_groups", "created_at", "expires_at", "last_used_at", "state")
    actions = ("revoke",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Action.ADMINISTER) and has_console()

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Action.ADMINISTER)

    @admin.display(description="groups")
    def which_groups(self, token: Token) -> str:
        return ", ".join(token.groups) or "all groups"

    @admin.display(description="clients")
    def which_clients(self, token: Token) -> str:
        return ", ".join(map(str, token.clients)) or "all clients"

    @admin.display
    def state(self, token: Token) -> str:
        return tokens.state_of(token)

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Lead to the console's form, which shows the secret once."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        return redirect("tasks_app:add_token")

    @admin.action(description="Revoke selected tokens", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[Token]) -> None:
        """Revoke the selected tokens."""
        with atomic():
            alive = list(queryset.filter(revoked_at=None))
            for token in alive:
                tokens.revoke(token, actor_of(request.user))
        names = ", ".join(token.name for token in alive)
        self.message_user(request, f"Revoked: {names or 'none, all were already revoked'}.", messages.SUCCESS)
