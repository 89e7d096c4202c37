"""People and roles in Django's admin: lists that lead to the console's forms.

A project that installs tasks_app keeps its own pages for users.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth import admin as _  # noqa: F401 - It registers its own, which are taken out below.
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from tasks_app.access.people import Person
from tasks_app.access.policy import Action, given_by, may
from tasks_app.admin.keyset import KeyedAdmin

admin.site.unregister([model for model in (Person, Group) if admin.site.is_registered(model)])


@admin.register(Person)
class PeopleAdmin(KeyedAdmin):
    needs = Action.ADMINISTER
    list_display = (Person.USERNAME_FIELD, "roles", "is_active", "is_superuser", "last_login")
    search_fields = (Person.USERNAME_FIELD,)

    def for_list(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows.prefetch_related("groups")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Action.ADMINISTER)

    @admin.display
    def roles(self, person: Person) -> str:
        return ", ".join(sorted(group.name for group in person.groups.all()))

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        return self._redirected(request, "tasks_app:add_person")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        return self._redirected(request, "tasks_app:person", object_id)

    def _redirected(self, request: HttpRequest, *to: str) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        return redirect(*to)


@admin.register(Group)
class RoleAdmin(KeyedAdmin):
    """A read-only list of the rights of each role."""

    needs = Action.ADMINISTER
    list_display = fields = ("name", "rights")

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        return super().changelist_view(request, {"title": "Roles"})

    @admin.display
    def rights(self, role: Group) -> str:
        return ", ".join(action for action in Action if action in given_by(role.permissions.all()))
