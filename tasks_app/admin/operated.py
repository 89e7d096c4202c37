"""The admin of what everybody in the console may see, and operators change."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from ..access.policy import Action, may
from .keyset import nothing_more


class OperatedAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    # The audit log replaces Django's own log.
    log_addition = log_change = log_deletions = nothing_more  # type: ignore[assignment]

    def has_module_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Action.SEE)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request.user, Action.SEE)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Action.OPERATE)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request.user, Action.OPERATE)

    has_delete_permission = has_change_permission

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for each in queryset:
            self.delete_model(request, each)
