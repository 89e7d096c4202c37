"""The site of Django's admin, which shares the console's sign-in and sign-out."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url
from django.urls import reverse

from tasks_app.access.people import Person, must_choose_password
from tasks_app.access.policy import Action, may


class AdminSite(admin.AdminSite):
    site_title = site_header = "Task Store"
    index_title = "Administration"
    site_url = "/console/"
    index_template = "taskstore_project/admin_index.html"

    def has_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Action.SEE)

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Redirect to the console's sign-in, which has the lock-out."""
        if not isinstance(request.user, Person):
            return redirect_to_login(request.GET.get("next", reverse("admin:index")), resolve_url("tasks_app:login"))
        if must_choose_password(request.user):
            return redirect("tasks_app:password")
        if self.has_permission(request):
            return redirect("admin:index")
        raise PermissionDenied

    def logout(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        from tasks_app.console.sign_in import logout

        return logout(request)

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        return redirect("tasks_app:password")

    def password_change_done(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        # Browsers would cache Django's page.
        return self.password_change(request)
