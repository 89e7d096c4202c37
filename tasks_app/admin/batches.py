"""Batches in Django's admin: operators release and delete them; programs create them."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from taskstore.types.scalars import REASON_LENGTH

from ..access.policy import actor_of
from ..bulk.starting import delete_batch
from ..control import batches
from ..models import Batch
from .keyset import KeyedAdmin, moment
from .operated import OperatedAdmin

NUMBERS = {"total": "total", "are_open": "open", "failed": "failed", "ended": "ended"}


class BatchForm(forms.ModelForm):  # type: ignore[type-arg]
    hold = forms.BooleanField(required=False, help_text="Clear it to let the batch close.")
    reason = forms.CharField(required=False, max_length=REASON_LENGTH, help_text="Recorded in the audit log.")

    class Meta:
        model = Batch
        fields = ("hold",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["hold"] = bool(self.instance.hold)

    def clean_hold(self) -> bool:
        hold: bool = self.cleaned_data["hold"]
        if hold and not self.instance.hold:
            raise forms.ValidationError("A batch that was released can't be held again.")
        return hold


def number(name: str) -> Any:
    """Return a column with a number of the members."""

    @admin.display(description=name)
    def shown(_: admin.ModelAdmin[Batch], batch: Batch) -> int:
        return int(getattr(batch.told(), name))

    return shown


def planned(when: str) -> Any:
    """Return a column with what the batch adds then."""

    @admin.display(description=when, empty_value="nothing")
    def shown(_: admin.ModelAdmin[Batch], batch: Batch) -> str | None:
        return "; ".join(tasks for word, tasks in batches.plans_of(batch) if word == when) or None

    return shown


@admin.register(Batch)
class BatchAdmin(OperatedAdmin, KeyedAdmin):
    form = BatchForm
    list_display = ("id", "name", "state", *NUMBERS, "created")
    search_fields = ("name",)
    created = moment("created_at_ms", "created")
    total, are_open, failed, ended = map(number, NUMBERS.values())
    closed = moment("closed_at_ms", "closed")
    adds_next, adds_then, adds_on_failure = map(planned, ("next", "then", "on failure"))
    readonly_fields = (
        "id", "name", "state", "problem", *NUMBERS, "upper", "children", "created", "closed",
        "adds_next", "adds_then", "adds_on_failure",
    )  # fmt: skip
    fields = (*readonly_fields, "hold", "reason")

    @admin.display
    def state(self, batch: Batch) -> str:
        return batch.told().state

    @admin.display(empty_value="none")
    def problem(self, batch: Batch) -> str | None:
        return batch.told().problem or None

    @admin.display(description="parent")
    def upper(self, batch: Batch) -> int | None:
        return batch.parent or None

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = Batch.objects.counted()
        return found

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if "hold" in form.changed_data:
            batches.release(obj.pk, actor_of(request.user, form.cleaned_data["reason"]))
        obj.refresh_from_db(fields=["hold", "closed_at_ms"])

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        delete_batch(obj.pk, actor_of(request.user, ""))
