"""The limits of groups in Django's admin."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from taskstore.errors import Forbidden
from taskstore.types.limits import LimitsRequest, Rate, problems_of
from taskstore.types.scalars import REASON_LENGTH

from ..access.policy import actor_of
from ..control import limits
from ..models import GroupLimit
from .operated import OperatedAdmin

FIELDS = {"rate.claims": "claims", "rate.per": "per_ms"}


class LimitForm(forms.ModelForm):  # type: ignore[type-arg]
    reason = forms.CharField(required=False, max_length=REASON_LENGTH, help_text="Recorded in the audit log.")

    class Meta:
        model = GroupLimit
        fields = ("name", "running", "claims", "per_ms", "by")
        labels = {"name": "Group", "per_ms": "Within (ms)", "by": "By label"}
        widgets = {"by": forms.TextInput}
        help_texts = {
            "name": "With a star at the end, every group that begins so, each for itself.",
            "running": "How many tasks may be leased at the same time.",
            "claims": "How many may be claimed within the time.",
            "by": "The name of a label: separately for each of its values.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in set(self.fields) - {"name"}:
            self.fields[name].required = False

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        for path, why in problems_of(self.request):
            field = FIELDS.get(path, path)
            if field not in self.errors:
                self.add_error(field if field in self.fields else None, f"{why[0].upper()}{why[1:]}.")
        return given

    @property
    def request(self) -> LimitsRequest:
        given = self.cleaned_data
        claims, per_ms = given.get("claims"), given.get("per_ms")
        rate = None if claims is None and per_ms is None else Rate(claims or 0, per_ms or 0)
        name = self.instance.name or given.get("name", "")
        return LimitsRequest(
            name, given.get("reason", ""), running=given.get("running"), rate=rate, by=given.get("by", "")
        )


@admin.register(GroupLimit)
class GroupLimitAdmin(OperatedAdmin):
    form = LimitForm
    list_display = ("name", "running", "claims", "per_ms", "by", "set_by", "at")
    ordering = ("name",)
    search_fields = ("name",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("name",) if obj else ()

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        asked = form.request
        try:
            limits.put(asked, actor_of(request.user, asked.reason))
        except Forbidden as forbidden:
            raise PermissionDenied(str(forbidden)) from None
        obj.refresh_from_db()

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        try:
            limits.remove(obj.name, actor_of(request.user, ""))
        except Forbidden as forbidden:
            raise PermissionDenied(str(forbidden)) from None
