"""Lists with pages by key, without an offset or a count, at any size of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse
from django.utils.formats import localize
from django.utils.timezone import localtime

from taskstore.errors import InvalidInput
from taskstore.types.scalars import whole

from ..access.policy import Action, may
from ..database import atomic
from ..reading.pages import Cursor, beyond

PAGE = 100


def has_console() -> bool:
    """Return whether the project has the console, whose forms confirm what the admin leads to."""
    try:
        return bool(reverse("tasks_app:confirm"))
    except NoReverseMatch:
        return False


def nothing_more(*_: Any) -> None:
    """Do nothing."""


class KeyedList(ChangeList):
    """A page of a list, with the key of its last row, after which the next page starts."""

    model_admin: KeyedAdmin

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        # The order is fixed, because it needs an index.
        return list(self.model_admin.get_ordering(request))

    def get_results(self, request: HttpRequest) -> None:
        order = self.get_ordering(request, self.queryset)
        self.is_first_page = PAGE_VAR not in request.GET
        try:
            place = Cursor.read(request.GET.get(PAGE_VAR))
        except InvalidInput:
            raise IncorrectLookupParameters from None  # Django shows the first page.
        found = list(beyond(self.model_admin.for_list(self.queryset), order, place)[: PAGE + 1])
        self.result_list = found[:PAGE]
        last = found[PAGE - 1] if len(found) > PAGE else None
        self.next_page = last and str(Cursor(getattr(last, order[0].removeprefix("-")), last.pk))
        # Values for Django's templates. They offer nothing beyond the page.
        self.result_count = self.full_result_count = len(self.result_list)
        self.show_full_result_count = True
        self.show_admin_actions = bool(self.result_list)
        self.can_show_all = self.multi_page = False

    @property
    def first_url(self) -> str:
        return str(self.get_query_string())

    @property
    def next_url(self) -> str:
        return str(self.get_query_string({PAGE_VAR: self.next_page}))


class KeyedAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """An admin of what everybody in the console may see, in pages by key, the newest first.

    Its changes wait for locks no longer than others.
    """

    # The audit log replaces Django's own log.
    log_addition = log_change = log_deletions = nothing_more  # type: ignore[assignment]
    ordering = ("-id",)
    sortable_by = ()
    list_per_page = PAGE
    show_facets = admin.ShowFacets.NEVER  # They would count rows.
    allowed_lookups: Sequence[str] = ()  # Filters in the address of a list; each has an index.

    def has_module_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Action.SEE)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return may(request.user, Action.SEE)

    def changeform_view(self, request: HttpRequest, *more: Any, **named: Any) -> Any:
        with atomic() if request.method == "POST" else nullcontext():
            return super().changeform_view(request, *more, **named)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeyedList

    def for_list(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows with only the columns that the list shows."""
        return rows

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        # PostgreSQL refuses the NUL character in queries, too.
        return lookup in self.allowed_lookups and "\0" not in value

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *more: Any, **named: Any
    ) -> HttpResponse | None:
        ids = request.POST.getlist(ACTION_CHECKBOX_NAME)
        if request.POST.get("select_across", "0") != "0" or None in map(whole, ids):
            self.message_user(request, "Nothing was done: select rows on the page.", messages.ERROR)
            return None
        return super().response_action(request, queryset, *more, **named)


def moment(field: str, title: str) -> Callable[[Any, Any], str]:
    """Return a column with the time that a field has in milliseconds; 0 stands for none."""

    @admin.display(description=title)
    def shown(_: object, row: Any) -> str:
        at_ms = getattr(row, field)
        return localize(localtime(datetime.fromtimestamp(at_ms / 1_000, UTC))) if at_ms else "-"

    return shown
