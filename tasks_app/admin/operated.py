"""The admin of what everybody in the console may see, and operators change."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from ..access.policy import Action, may
from .keyset import StoreAdmin


class OperatedAdmin(StoreAdmin):
    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Action.OPERATE)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request.user, Action.OPERATE)

    has_delete_permission = has_change_permission

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for each in queryset:
            self.delete_model(request, each)
