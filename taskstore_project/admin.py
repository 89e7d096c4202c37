"""People and roles in Django's admin. A project that installs tasks_app keeps its own pages for users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.forms import AdminPasswordChangeForm
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from tasks_app.access import audit, sessions
from tasks_app.access.accounts import keeps_an_administrator
from tasks_app.access.people import password_was_given
from tasks_app.access.policy import ROLES, Action, actor_of, may
from taskstore.errors import InvalidInput

admin.site.unregister(User)
admin.site.unregister(Group)


class ForAdministrators(admin.ModelAdmin):  # type: ignore[type-arg]
    """An admin that requires the right to `ADMINISTER`."""

    actions = None

    def has_module_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Action.ADMINISTER)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request.user, Action.ADMINISTER)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Action.ADMINISTER)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request.user, Action.ADMINISTER)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # People can't delete their own accounts.
        return may(request.user, Action.ADMINISTER) and obj != request.user


class GivenPasswordForm(AdminPasswordChangeForm):  # type: ignore[type-arg]
    """The form for a one-time password, which only allows the choice of another one."""

    def save(self, commit: bool = True) -> User:
        user: User = super().save(commit)
        password_was_given(user)
        sessions.end_all_of(user)
        return user


@admin.register(User)
class PeopleAdmin(ForAdministrators, UserAdmin):  # type: ignore[type-arg]
    change_password_form = GivenPasswordForm
    list_display = ("username", "roles", "is_active", "is_superuser", "last_login")
    list_filter = ("is_active", "is_superuser", "groups")
    search_fields = ("username", "first_name", "last_name", "email")
    filter_horizontal = ()
    readonly_fields = ("last_login", "date_joined")
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Person", {"fields": ("first_name", "last_name", "email")}),
        ("Rights", {"fields": ("is_active", "is_superuser", "groups")}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = ((None, {"classes": ("wide",), "fields": ("username", "password1", "password2", "groups")}),)

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        return super().get_queryset(request).prefetch_related("groups")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        # People can't remove their own rights.
        own = ("is_active", "is_superuser", "groups") if obj == request.user else ()
        return (*self.readonly_fields, *own)

    @admin.display
    def roles(self, user: User) -> str:
        return ", ".join(sorted(group.name for group in user.groups.all()))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if not change:
            password_was_given(obj)
        elif not obj.is_active:
            sessions.end_all_of(obj)  # Otherwise they would continue when the account is reopened.

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        # Checked after the groups are set; a refusal rolls back the whole save.
        with may_not_be_the_last():
            super().save_related(request, form, formsets, change)

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        with may_not_be_the_last():
            super().delete_model(request, obj)

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        if id == str(request.user.pk):
            return redirect("console:password")
        with transaction.atomic():
            return super().user_change_password(request, id, form_url)

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> None:  # type: ignore[override]
        write_down(request, "add user", obj)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> None:  # type: ignore[override]
        if changed := changed_fields(message):
            write_down(request, "reset password" if changed == ["password"] else "edit user", obj, changed=changed)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> None:  # type: ignore[override]
        for obj in queryset:
            write_down(request, "delete user", obj)


@admin.register(Group)
class RoleAdmin(ForAdministrators):
    """A read-only list of the rights of each role, which `policy.ROLES` defines."""

    list_display = ("name", "rights")
    fields = ("name", "rights")

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        return super().changelist_view(request, {"title": "Roles"})

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.display
    def rights(self, role: Group) -> str:
        return ", ".join(action for action in Action if action in ROLES.get(role.name, ()))


@contextmanager
def may_not_be_the_last() -> Iterator[None]:
    """Guard a change that may take rights away. Raises PermissionDenied when no administrator would remain."""
    try:
        with keeps_an_administrator():
            yield
    except InvalidInput as refused:
        raise PermissionDenied(str(refused)) from None


def changed_fields(message: Any) -> list[str]:
    """Return the changed fields in Django's message."""
    return [field for each in message for field in each.get("changed", {}).get("fields", ())]


def write_down(request: HttpRequest, action: str, user: User, **details: Any) -> None:
    """Record the change in the audit log, with the user's new rights."""
    audit.record(
        actor_of(request.user),
        action,
        selection=f"user {user}",
        done=1,
        details={
            **details,
            "roles": sorted(user.groups.values_list("name", flat=True)),
            "superuser": user.is_superuser,
            "active": user.is_active,
        },
    )
