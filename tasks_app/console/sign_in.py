"""Sign-in, sign-out, the choice of a password, and the theme.

Sign-ins, failed sign-ins, lock-outs and sign-outs are recorded in the audit log and in the server's log.
"""

from __future__ import annotations

import logging
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout as auth_logout
from django.contrib.auth import update_session_auth_hash, views
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm, SetPasswordForm
from django.db import DEFAULT_DB_ALIAS
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render, resolve_url
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from taskstore.errors import InvalidInput

from ..access import accounts, audit, sessions
from ..access.people import Person, must_choose_password, name_of, named, nobody_has_come_yet, password_was_chosen
from ..access.policy import actor_of
from ..access.request_limits import SIGN_INS, address_of, network_of
from ..core.actors import Actor
from ..database import atomic
from .pages import in_english, is_partial, problem, sent_again, sign_in_page, to_sign_in, user_of

THEMES = ("system", "light", "dark")
THEME_AGE_S = 365 * 24 * 3600
LONGEST_UNKNOWN_NAME = 40  # People type anything into the name field, passwords too: record only the beginning.

log = logging.getLogger(__name__)


class Login(views.LoginView):
    """The sign-in page. The very first visitor reads where the password is."""

    template_name = "tasks_app/login.html"
    redirect_authenticated_user = True
    next_page = "tasks_app:overview"

    def get_template_names(self) -> list[str]:
        """As a dialog above an open page, when a script asks for it."""
        return ["tasks_app/_login.html" if is_partial(self.request) else self.template_name]

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        # The lock-out is per name. This limit stops an attempt of one password on many names.
        wait_s = SIGN_INS.take(network_of(request))
        if not wait_s:
            return super().post(request, *args, **kwargs)
        response = render(request, "tasks_app/locked.html", {"wait_ms": wait_s * 1_000}, status=429)
        response["Retry-After"] = wait_s
        return response

    @atomic(DEFAULT_DB_ALIAS)
    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        response = super().form_valid(form)
        _write_down(self.request, name_of(form.get_user()), "sign in", logging.INFO)
        if is_partial(self.request):
            return render(self.request, "tasks_app/_signed_in.html")
        if again := sent_again(self.request, self.request.POST.get("kept", "")):
            return render(self.request, "tasks_app/signed_in.html", {"again": again})
        return response

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        name, was_tried = form.cleaned_data.get("username", ""), "password" in form.cleaned_data
        # django-axes sets this for failures that count; attempts during a lock-out are refused unchecked.
        failures = getattr(self.request, "axes_failures_since_start", None)
        is_locked = getattr(self.request, "axes_locked_out", False)
        if name and was_tried and (failures is not None or not is_locked):
            username = _known_or_not(name)
            _write_down(self.request, username, "failed sign-in", logging.WARNING)
            if is_locked:
                _write_down(self.request, username, "lock out", logging.WARNING)
        return super().form_invalid(form)

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        has_ended = settings.SESSION_COOKIE_NAME in self.request.COOKIES
        kept = self.request.POST.get("kept", "")
        return super().get_context_data(**more, is_first=nobody_has_come_yet(), has_ended=has_ended, kept=kept)


login = in_english(Login.as_view())


class Logout(views.LogoutView):
    """The sign-out; it ends the session on every node."""

    def get_default_redirect_url(self) -> str:
        return resolve_url(settings.LOGOUT_REDIRECT_URL) if settings.LOGOUT_REDIRECT_URL else sign_in_page()

    @method_decorator(atomic(DEFAULT_DB_ALIAS))
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if isinstance(request.user, Person):
            _write_down(request, name_of(request.user), "sign out", logging.INFO)
        return super().post(request, *args, **kwargs)


logout = Logout.as_view()


@never_cache
@require_POST
@in_english
def logout_everywhere(request: HttpRequest) -> HttpResponse:
    """End all sessions of the signed-in person, including this one."""
    if not isinstance(request.user, Person):
        return to_sign_in(request)
    user = user_of(request)
    try:
        accounts.sign_out_everywhere(user, actor_of(user))
    except InvalidInput as refused:
        return problem(request, refused)
    log.info("sign out everywhere: %s from %s", name_of(user), address_of(request))
    auth_logout(request)
    return redirect(sign_in_page())


def _known_or_not(typed: str) -> str:
    """Return the name of a known user, otherwise `unknown:` and the printable name."""
    known = Person._default_manager.filter(**named(typed)).first()
    if known is not None:
        return name_of(known)
    shown = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in typed)
    return f"unknown:{shown[:LONGEST_UNKNOWN_NAME]}{'…' if len(shown) > LONGEST_UNKNOWN_NAME else ''}"


def _write_down(request: HttpRequest, username: str, action: str, level: int) -> None:
    address = address_of(request) or "an unknown address"
    audit.record(Actor(username), action, selection=f"from {address}", done=1, details={"address": address})
    log.log(level, "%s: %s from %s", action, username, address)


class FirstPasswordForm(SetPasswordForm):  # type: ignore[type-arg]  # Generic for the type checker only.
    """The choice of the first password. It does not ask for the one-time password, which was just used."""

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
@in_english
def password(request: HttpRequest) -> HttpResponse:
    """Choose a new password; a person with a one-time password sees no other page before."""
    if not isinstance(request.user, Person):
        return to_sign_in(request)
    user = user_of(request)
    is_first = must_choose_password(user)
    form = (FirstPasswordForm if is_first else PasswordChangeForm)(user, request.POST or None)
    if not form.is_valid():
        status = 422 if form.is_bound else 200
        return render(request, "tasks_app/password.html", {"form": form, "is_first": is_first}, status=status)
    with atomic(DEFAULT_DB_ALIAS):
        form.save()
        password_was_chosen(user)
        sessions.look_again()
        audit.record(actor_of(user), "change password", selection="their own", done=1)
    # This session continues; sessions in other browsers end with the old password.
    update_session_auth_hash(request, user)
    messages.success(request, "Your password was changed.")
    return redirect("tasks_app:overview")


@require_POST
@in_english
def theme(request: HttpRequest) -> HttpResponse:
    """Keep the theme in a cookie, so that the next page starts with it."""
    chosen = request.POST.get("theme", "")
    if chosen not in THEMES:
        return problem(request, InvalidInput({"theme": [f"must be one of {', '.join(THEMES)}"]}))
    before = request.POST.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(before, {request.get_host()}, require_https=request.is_secure())
    # Not `redirect`, which takes text for the name of a view first.
    response = HttpResponseRedirect(before if is_ours and "/" in before else resolve_url("tasks_app:overview"))
    response.set_cookie("theme", chosen, max_age=THEME_AGE_S, samesite="Lax", secure=request.is_secure())
    return response
