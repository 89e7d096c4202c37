"""Coming in and going out: sign-in, sign-out, password, and the theme that a browser is shown.

Sign-ins, failed sign-ins, lock-outs and sign-outs are in the audit, and a line of the log each.
"""

from __future__ import annotations

import logging
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth import logout as auth_logout
from django.contrib.auth import update_session_auth_hash, views
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm, SetPasswordForm
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from taskstore.errors import InvalidInput

from ..access import accounts, audit, sessions
from ..access.people import must_choose_password, nobody_has_come_yet, password_was_chosen
from ..access.policy import actor_of
from ..access.request_limits import SIGN_INS, address_of, network_of
from ..core.actors import Actor
from .pages import problem, user_of

THEMES = ("system", "light", "dark")
THEME_AGE_S = 365 * 24 * 3600
LONGEST_UNKNOWN_NAME = 40  # What people type into the field for the name may be anything, a password too.

log = logging.getLogger(__name__)


class Login(views.LoginView):
    """The sign-in; the very first one is told where its password is."""

    template_name = "console/login.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        # Beside the lock-out, which is for one name: who tries one password on many names meets this.
        wait_s = SIGN_INS.take(network_of(request))
        if not wait_s:
            return super().post(request, *args, **kwargs)
        response = render(request, "console/locked.html", {"wait_ms": wait_s * 1_000}, status=429)
        response["Retry-After"] = wait_s
        return response

    @transaction.atomic
    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        response = super().form_valid(form)
        _write_down(self.request, form.get_user().get_username(), "sign in", logging.INFO)
        return response

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        name, was_tried = form.cleaned_data.get("username", ""), "password" in form.cleaned_data
        # Set by django-axes for a failure that counts: what is tried during a lock-out is refused unseen.
        failures = getattr(self.request, "axes_failures_since_start", None)
        is_locked = getattr(self.request, "axes_locked_out", False)
        if name and was_tried and (failures is not None or not is_locked):
            who = _known_or_not(name)
            _write_down(self.request, who, "failed sign-in", logging.WARNING)
            if is_locked:
                _write_down(self.request, who, "lock out", logging.WARNING)
        return super().form_invalid(form)

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        return super().get_context_data(**more, is_first=nobody_has_come_yet())


login = Login.as_view()


class Logout(views.LogoutView):
    """The sign-out, which ends the session on every server."""

    next_page = "console:login"

    @method_decorator(transaction.atomic)
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if isinstance(request.user, User):
            _write_down(request, request.user.get_username(), "sign out", logging.INFO)
        return super().post(request, *args, **kwargs)


logout = Logout.as_view()


@never_cache
@require_POST
@login_required
def logout_everywhere(request: HttpRequest) -> HttpResponse:
    """End all sessions of the person who asks, this one too."""
    user = user_of(request)
    accounts.sign_out_everywhere(user, actor_of(user))
    log.info("sign out everywhere: %s from %s", user.get_username(), address_of(request))
    auth_logout(request)
    return redirect("console:login")


def _known_or_not(typed: str) -> str:
    """The name of a user; `unknown:` and what can be shown of a name that nobody has, as no user's name has a colon."""
    known = User.objects.filter(username=User.normalize_username(typed)).values_list("username", flat=True).first()
    if known is not None:
        return known
    shown = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in typed)
    return f"unknown:{shown[:LONGEST_UNKNOWN_NAME]}{'…' if len(shown) > LONGEST_UNKNOWN_NAME else ''}"


def _write_down(request: HttpRequest, who: str, action: str, level: int) -> None:
    address = address_of(request) or "an unknown address"
    audit.record(Actor(who), action, selection=f"from {address}", done=1, details={"address": address})
    log.log(level, "%s: %s from %s", action, who, address)


class FirstPasswordForm(SetPasswordForm):  # type: ignore[type-arg]  # Generic for the type checker only.
    """The first own password: the one-time password was asked for a moment ago, so it isn't again."""

    def clean(self) -> dict[str, Any]:
        chosen = super().clean() or self.cleaned_data
        password = chosen.get("new_password1")
        if password and self.user.check_password(password):
            self.add_error(
                "new_password1", forms.ValidationError("Choose a password other than the one-time password.")
            )
        return chosen


@never_cache
@require_http_methods(["GET", "POST"])
@login_required
def password(request: HttpRequest) -> HttpResponse:
    """Choose a new password; whoever has a one-time password gets no further without."""
    user = user_of(request)
    is_first = must_choose_password(user)
    form = (FirstPasswordForm if is_first else PasswordChangeForm)(user, request.POST or None)
    if not form.is_valid():
        status = 422 if form.is_bound else 200
        return render(request, "console/password.html", {"form": form, "is_first": is_first}, status=status)
    _change_password(user, form)
    # The session goes on; the ones in other browsers end with the old password.
    update_session_auth_hash(request, user)
    messages.success(request, "Your password was changed.")
    return redirect("console:overview")


@transaction.atomic
def _change_password(user: User, form: SetPasswordForm[User]) -> None:
    form.save()
    password_was_chosen(user)
    sessions.look_again()
    audit.record(actor_of(user), "change password", selection="their own", done=1)


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Keep in a cookie how the console looks, so that the first byte of the next page has it right."""
    chosen = request.POST.get("theme", "")
    if chosen not in THEMES:
        return problem(request, InvalidInput({"theme": [f"must be one of {', '.join(THEMES)}"]}))
    response = redirect(_page_before(request))
    response.set_cookie("theme", chosen, max_age=THEME_AGE_S, samesite="Lax", secure=request.is_secure())
    return response


def _page_before(request: HttpRequest) -> str:
    before = request.POST.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(before, {request.get_host()}, require_https=request.is_secure())
    return before if is_ours else resolve_url("console:overview")
