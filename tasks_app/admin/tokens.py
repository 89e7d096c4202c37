"""The admin of tokens: view and revoke them. The console creates them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from ..access import tokens
from ..access.policy import Action, actor_of, may
from ..database import atomic
from ..models import Token
from .keyset import KeyedAdmin, has_console


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
